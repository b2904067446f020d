//! One file per command.

pub mod buckets;
pub mod cat;
pub mod completions;
pub mod config;
mod copied;
pub mod cp;
pub mod cp_between;
pub mod cp_many;
pub mod cp_upload;
pub mod cp_upload_many;
pub mod doctor;
pub mod du;
pub mod hash;
pub mod ls;
pub mod man;
pub mod mount;
pub mod mv;
pub mod presign;
mod repeats;
pub mod rm;
pub mod serve;
pub mod stat;
pub mod top;
pub mod umount;
pub mod uploads;
pub mod version;
