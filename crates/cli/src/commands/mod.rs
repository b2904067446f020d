//! One file per command.

pub mod cat;
pub mod config;
pub mod cp;
pub mod cp_many;
pub mod doctor;
pub mod ls;
pub mod serve;
pub mod stat;
pub mod version;
