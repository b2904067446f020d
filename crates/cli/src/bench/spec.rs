//! What the parent asks of a bench child, and what the child answers: one JSON line each way, and its
//! progress between.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::bench::floor::FloorShape;
use crate::bench::run::Measurement;
use crate::failure::Failure;

/// Where the bytes of a measured run go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LandingKind {
    Nowhere,
    /// One buffer of the object's size, allocated and touched before the clock starts.
    Memory,
    /// A pipe that another process reads and drops.
    Stream,
    /// A new file each time, removed afterwards.
    File(PathBuf),
}

impl FromStr for LandingKind {
    type Err = String;

    fn from_str(text: &str) -> Result<LandingKind, String> {
        match text {
            "nowhere" => Ok(LandingKind::Nowhere),
            "memory" => Ok(LandingKind::Memory),
            "stream" => Ok(LandingKind::Stream),
            _ => match text.strip_prefix("file:") {
                Some(path) if !path.is_empty() => Ok(LandingKind::File(path.into())),
                _ => Err("write nowhere, memory, stream or file:PATH".into()),
            },
        }
    }
}

impl std::fmt::Display for LandingKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LandingKind::Nowhere => "nowhere",
            LandingKind::Memory => "memory",
            LandingKind::Stream => "stream",
            LandingKind::File(_) => "file",
        })
    }
}

/// What a measured upload sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    File(PathBuf),
    /// Bytes that no disk brings.
    Synthetic,
}

impl std::fmt::Display for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Payload::File(_) => "file",
            Payload::Synthetic => "synthetic",
        })
    }
}

/// Where the bytes of a measured run go on this machine, or come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LocalEnd {
    Landing(LandingKind),
    Payload(Payload),
}

/// One repetition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// The URL, as the user typed it.
    pub url: String,
    /// The knobs of the command line; the child reads the environment by itself.
    pub knobs: Vec<(String, String)>,
    pub end: LocalEnd,
    pub work: ChildWork,
    /// Size of the object.
    pub bytes: u64,
    /// Its strong ETag, which pins every range of the floor too; none of an upload.
    pub etag: Option<String>,
    /// The address that the floor speaks to: the one that the probe was answered from.
    pub address: SocketAddr,
    /// Whether a row per part and the samples are wanted back.
    pub rows: bool,
    /// Whether progress is wanted, ten times a second.
    pub progress: bool,
}

/// Who fetches or sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildWork {
    Get,
    Floor(FloorShape),
    /// All objects below the URL.
    GetMany,
    FloorMany(FloorShape),
    Put,
    FloorPut(FloorShape),
}

impl ChildWork {
    /// The floor of the same work, in this shape.
    pub fn floor(self, shape: FloorShape) -> ChildWork {
        match self {
            ChildWork::Get | ChildWork::Floor(_) => ChildWork::Floor(shape),
            ChildWork::GetMany | ChildWork::FloorMany(_) => ChildWork::FloorMany(shape),
            ChildWork::Put | ChildWork::FloorPut(_) => ChildWork::FloorPut(shape),
        }
    }
}

/// A line of the child.
#[derive(Debug, Serialize, Deserialize)]
pub enum ChildMessage {
    /// Bytes that have landed, or were sent.
    Progress(u64),
    Done(Box<Measurement>),
    Failed(Failure),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn landings_as_typed() {
        let check =
            |text: &str, expected: Option<LandingKind>| assert_eq!(text.parse().ok(), expected, "{text}");
        check("nowhere", Some(LandingKind::Nowhere));
        check("memory", Some(LandingKind::Memory));
        check("stream", Some(LandingKind::Stream));
        check("file:/dev/shm/x", Some(LandingKind::File("/dev/shm/x".into())));
        check("file:", None);
        check("disk", None);
    }
}
