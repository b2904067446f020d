//! One file per command.

pub mod cat;
pub mod completions;
pub mod config;
pub mod cp;
pub mod cp_many;
pub mod cp_upload;
pub mod cp_upload_many;
pub mod doctor;
pub mod ls;
pub mod man;
pub mod mount;
mod repeats;
pub mod serve;
pub mod stat;
pub mod top;
pub mod umount;
pub mod version;
