//! Indexes of random trees against a model, damaged indexes, and images judged by erofs-utils and the kernel.

mod damage;
mod erofs;
mod model;
mod random;
mod refusals;
