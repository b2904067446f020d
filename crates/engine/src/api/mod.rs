//! What is asked of a store, by whom, and what its answers mean.

pub(crate) mod account;
pub mod credentials;

pub(crate) mod operation;
pub(crate) mod pinned;
pub(crate) mod refusal;
pub(crate) mod service;
pub(crate) mod template;
pub(crate) mod write;
