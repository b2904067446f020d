//! Checksums of what can be read, several in one pass.

use std::io::{self, ErrorKind, Read};

use flatout_wire::checksum;
use md5::{Digest, Md5};

/// As much is read at once.
const PIECE_BYTES: usize = 256 << 10;

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Md5,
    Crc(checksum::Algorithm),
}

impl Algorithm {
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Md5 => "md5",
            Algorithm::Crc(crc) => crc.name(),
        }
    }

    /// As an origin's header has it; MD5 as an ETag has it.
    pub fn encode(self, sum: u128) -> String {
        match self {
            Algorithm::Md5 => format!("{sum:032x}"),
            Algorithm::Crc(crc) => crc.encode(sum as u64),
        }
    }
}

/// Reads to the end: how many bytes there are, and their checksums.
pub fn read_to_end(input: &mut impl Read, algorithms: &[Algorithm]) -> io::Result<(u64, Vec<u128>)> {
    let mut hashes: Vec<Running> = algorithms.iter().map(|algorithm| Running::new(*algorithm)).collect();
    let (mut piece, mut bytes) = (vec![0; PIECE_BYTES], 0);
    loop {
        match input.read(&mut piece) {
            Ok(0) => return Ok((bytes, hashes.into_iter().map(Running::finish).collect())),
            Ok(read) => {
                hashes.iter_mut().for_each(|hash| hash.update(&piece[..read]));
                bytes += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A hash on its way.
enum Running {
    Md5(Md5),
    Crc(Box<checksum::Hasher>),
}

impl Running {
    fn new(algorithm: Algorithm) -> Running {
        match algorithm {
            Algorithm::Md5 => Running::Md5(Md5::new()),
            Algorithm::Crc(crc) => Running::Crc(Box::new(checksum::Hasher::new(crc))),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Running::Md5(hasher) => hasher.update(bytes),
            Running::Crc(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> u128 {
        match self {
            Running::Md5(hasher) => u128::from_be_bytes(hasher.finalize().into()),
            Running::Crc(hasher) => u128::from(hasher.value()),
        }
    }
}
