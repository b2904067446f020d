//! The simulation: the real engine on one thread, against a modelled origin, in virtual time, all chance from
//! a seed.
//!
//! ```text
//!   FLATOUT_SEED=123 cargo test -p flatout-engine sim -- --nocapture     one seed, with a trace of what happened when
//!   FLATOUT_SEEDS=20000 cargo test -p flatout-engine sim                 more of them
//! ```
//!
//! What is real: `Client`, `Transfer`, shards and their futures, parts, landings, sources, leases, retries,
//! HTTP. What is modelled: the connection (`line`, put in by `socket::connect`), the origin behind it
//! (`origin`; `store` where objects are written), the clock (tokio's, paused: it jumps to the next timer when
//! every task waits), and the caller (`run`, `put_run`). What is checked stands in `check` and `put_check`,
//! and in `world` where it can only be seen as it happens.
//!
//! A body on its way to the origin fills what the kernel would hold of it, and is taken from there piece by
//! piece. What is left there when a connection is dropped may arrive later, as it may from a kernel.
//!
//! To add a shape of the world, write a function in `shapes` or `put_shapes` that changes what `fair` has
//! drawn, and name it in `SHAPES`. A new habit or fault of origins is a field of `Origin` or a row of `Fault`
//! in `scenario`, its effect a few lines in `origin`, and the error that it explains a row in `explain`
//! there. A new promise of the engine is a function in `check`; show that it can fail by breaking the engine
//! once by hand.

mod check;
mod crowd;
mod line;
mod origin;
mod outages;
mod policy;
mod put_check;
mod put_run;
mod put_shapes;
mod put_tests;
mod run;
mod scenario;
mod shapes;
mod store;
mod tails;
mod tests;
mod world;

pub(crate) use line::{Line, connect};
