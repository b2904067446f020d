//! Two trees of names, walked side by side in one order, and what makes the one like the other.
//!
//! ```text
//! source: items in the order of names ──┐
//!                                       ├─ Join ─ pairs ─ decide ─ what is to be done with a name
//! target: items in the order of names ──┘
//! ```
//!
//! Nothing here asks an origin or moves a byte, and no tree is held in memory. Each side of a name is
//! present, absent or **unknown**: what could not be read is never taken for absent.
//! docs/life-of-a-sync.md walks the whole road. The crate depends on nothing but std.

#![forbid(unsafe_code)]

pub mod decide;
pub mod item;
pub mod join;
#[cfg(test)]
mod model;
pub mod walk;
