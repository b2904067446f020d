//! The reference model.
