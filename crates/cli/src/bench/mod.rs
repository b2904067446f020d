//! `flatout bench`: what a fetch costs, each run in a process of its own, and what plain sockets would have cost.

mod child;
mod demo;
mod drain;
mod floor;
mod get;
mod many;
mod origin_process;
mod report;
mod run;
mod samples;
mod spec;

pub use child::child;
pub use demo::demo;
pub use drain::drain;
pub use get::get;
pub use spec::Landing;
