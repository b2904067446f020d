//! Decisions without threads, clocks or sockets: times and chance are arguments, so that tables of facts test
//! them.

pub(crate) mod budget;
pub(crate) mod cooldown;
pub(crate) mod flight;
pub(crate) mod hedge;
pub(crate) mod outage;
pub(crate) mod pace;
pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod rank;
pub(crate) mod receive_size;
pub(crate) mod retry;
