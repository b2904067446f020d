//! Names to addresses, addresses to byte streams: plain, through a proxy, or under TLS.

pub(crate) mod endpoint;
pub(crate) mod interface;
pub(crate) mod proxy;
pub(crate) mod socket;
pub(crate) mod stall;
pub(crate) mod tls;
pub(crate) mod tls_errors;
pub(crate) mod tls_incoming;
pub(crate) mod tls_records;
pub(crate) mod tls_stream;
