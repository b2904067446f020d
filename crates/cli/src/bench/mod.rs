//! `flatout bench`: what a transfer costs, each run in a process of its own, and what plain sockets would
//! have cost.

mod child;
mod clock;
mod demo;
mod drain;
mod floor;
mod get;
mod many;
mod one;
mod origin_process;
mod peer;
mod prepare;
mod prepared;
mod put;
mod read;
mod ready_landing;
mod report;
mod run;
mod samples;
mod session;
mod spec;
mod sweep;
mod upload;

pub use child::child;
pub use demo::demo;
pub use drain::drain;
pub use floor::FloorShape;
pub use get::get;
pub use peer::peer;
pub use put::put;
pub use read::{ReadFiles, read_files};
pub use samples::peak_gbit;
pub use spec::LandingKind;
pub use sweep::sweep;
