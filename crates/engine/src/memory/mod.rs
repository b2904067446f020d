//! The memory of a client: who holds how much of it, and who waits for more.

pub(crate) mod lease;
pub(crate) mod plan;
pub(crate) mod waits;
