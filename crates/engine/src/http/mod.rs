//! Our own HTTP/1.1 of the data path.

pub(crate) mod connection;
