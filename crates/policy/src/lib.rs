//! Decisions without threads, clocks or sockets: times and chance are arguments, so that tables of facts test
//! them. The crate depends on nothing but std.

#![forbid(unsafe_code)]

pub mod batch_order;
pub mod budget;
pub mod cooldown;
pub mod edit;
pub mod flight;
pub mod hedge;
pub mod latency;
pub mod listing;
pub mod outage;
pub mod pace;
pub mod plan;
pub mod queue;
pub mod ranges;
pub mod rank;
pub mod receive_size;
pub mod retry;
pub mod unsent_size;
pub mod upload;
