//! Flatout's wire formats: S3, OSS and plain HTTP as bytes. Requests, signatures, ranges, heads, listings,
//! verdicts.
//!
//! Nothing here opens a socket, reads a clock or starts a thread: time is an argument, bytes come and go as
//! slices. The data path needs two things of this crate, and both are without waste:
//! [`request::Request::write_head`] with [`sign::Signer::sign`] once per attempt, and [`head::parse`] once
//! per answer.

#![forbid(unsafe_code)]

pub mod acs_sign;
pub mod aws_chunked;
pub mod body_checksum;
pub mod checksum;
pub mod chunked;
pub mod copy_source;
mod day_key;
pub mod documents;
pub mod endpoint;
pub mod head;
pub mod listing;
pub mod location;
pub mod object_options;
pub mod oss;
pub mod oss_sign;
mod oss_write;
pub mod percent;
pub mod range;
pub mod request;
pub mod s3;
mod s3_write;
pub mod sign;
pub mod time;
pub mod upload_answers;
pub mod verdict;
pub mod words;
pub mod xml;
