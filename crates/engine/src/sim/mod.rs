//! The simulation: the real engine on one thread, against a modelled origin, in virtual time, all chance from
//! a seed.
//!
//! ```text
//!   FLATOUT_SEED=123 cargo test -p flatout-engine sim -- --nocapture     one seed, with a trace of what happened when
//!   FLATOUT_SEEDS=20000 cargo test -p flatout-engine sim                 more of them
//! ```
//!
//! What is real: `Client`, `Transfer`, shards and their futures, parts, landings, leases, retries, HTTP. What
//! is modelled: the connection (`line`, put in by `socket::connect`), the origin behind it (`origin`), the
//! clock (tokio's, paused: it jumps to the next timer when every task waits), and the caller (`run`). What is
//! checked stands in `check`, and in `world` where it can only be seen as it happens.
//!
//! To add a shape of the world, write a function in `shapes` that changes what `fair` has drawn, and name it
//! in `SHAPES`. A new habit or fault of origins is a field of `Origin` or a row of `Fault` in `scenario`, its
//! effect a few lines in `origin`, and the error that it explains a row in `explain` there. A new promise of
//! the engine is a function in `check`; show that it can fail by breaking the engine once by hand.

mod check;
mod crowd;
mod line;
mod origin;
mod outages;
mod policy;
mod run;
mod scenario;
mod shapes;
mod tails;
mod tests;
mod world;

pub(crate) use line::{Line, connect};
