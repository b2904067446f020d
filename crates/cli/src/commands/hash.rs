//! `flatout hash`: checksums of files, and those that origins state of objects.

use std::fs::File;
use std::io::{self, Read};

use flatout_engine::{Dialect, Stat};
use flatout_wire::checksum::{Algorithm, Hasher};
use md5::{Digest, Md5};

use crate::args::{Hash, HashName};
use crate::commands::stat::checksum_event;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::{origin, outages};

/// As much is read at once.
const PIECE_BYTES: usize = 1 << 20;
const ALL: [HashName; 4] = [HashName::Crc64nvme, HashName::Crc64xz, HashName::Crc32c, HashName::Md5];

pub fn run(args: &Hash, console: &Console) -> Result<Exit, Failure> {
    let mut exit = Exit::Clean;
    for typed in &args.sources {
        let hashed = match typed.contains("://") {
            true => stated(args, typed, console),
            false => computed(args, typed),
        };
        let told = hashed.and_then(|event| tell(&event, console));
        if let Err(failure) = told {
            if failure.is_silent() || failure.is_of_stdout() {
                return Err(failure);
            }
            console.failure(Carries::Lines, &failure);
            exit = exit.max(failure.exit);
        }
    }
    Ok(exit)
}

fn tell(event: &events::Hash, console: &Console) -> Result<(), Failure> {
    console.answer(&one_line(&event.source))?;
    let mut rows: Vec<(&str, String)> = Vec::new();
    rows.extend(event.bytes.map(|bytes| ("size", bytes.to_string())));
    rows.extend(event.etag.clone().map(|etag| ("etag", etag)));
    for checksum in &event.checksums {
        let composite = checksum.composite_of.map(|parts| format!(" (of {parts} parts' checksums)"));
        rows.push((checksum.algorithm, format!("{}{}", checksum.value, composite.unwrap_or_default())));
    }
    for (name, value) in rows {
        console.answer(&format!("  {name:14} {}", one_line(&value)))?;
    }
    console.event(Carries::Lines, event)
}

/// What the origin states: nothing is read.
fn stated(args: &Hash, typed: &str, console: &Console) -> Result<events::Hash, Failure> {
    let location = origin::object("hash", typed)?;
    let client = origin::client(console, &args.knobs, &[Dialect::of(&location)])?;
    outages::tell_without_bar(&client, console);
    let stat: Stat = client.stat(&location)?;
    let wanted =
        |name: &str| args.algorithm.is_empty() || args.algorithm.iter().any(|one| self::name(*one) == name);
    let checksums: Vec<events::Checksum> =
        stat.checksums.iter().map(checksum_event).filter(|checksum| wanted(checksum.algorithm)).collect();
    if checksums.is_empty() {
        let which = if args.algorithm.is_empty() { "no checksum" } else { "none of these checksums" };
        let failure = Failure {
            exit: Exit::Failed,
            kind: "unsupported".into(),
            message: format!("hash: {location}: the origin states {which}"),
            hint: None,
        };
        return Err(failure.with_hint("to compute them: `flatout cat URL | flatout hash -`"));
    }
    Ok(events::Hash {
        source: location.to_string(),
        bytes: stat.version.size,
        etag: stat.version.etag,
        checksums,
    })
}

fn computed(args: &Hash, typed: &str) -> Result<events::Hash, Failure> {
    let unread = |error: io::Error| {
        let name = if typed == "-" { "standard input" } else { typed };
        let failure = Failure::local("read", name, &error);
        match error.kind() {
            io::ErrorKind::NotFound => {
                failure.with_hint("check the path; URLs begin with s3://, oss:// or https://")
            }
            _ => failure,
        }
    };
    let names = if args.algorithm.is_empty() { &ALL[..] } else { &args.algorithm };
    let mut hashes: Vec<Running> = names.iter().map(|name| Running::new(*name)).collect();
    let mut input: Box<dyn Read> = match typed {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(File::open(path).map_err(unread)?),
    };
    let (mut piece, mut bytes) = (vec![0; PIECE_BYTES], 0);
    loop {
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                hashes.iter_mut().for_each(|hash| hash.update(&piece[..read]));
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unread(error)),
        }
    }
    let checksums = names.iter().zip(hashes).map(|(name, hash)| events::Checksum {
        algorithm: self::name(*name),
        value: hash.finish(),
        composite_of: None,
    });
    let checksums = checksums.collect();
    Ok(events::Hash { source: typed.to_owned(), bytes: Some(bytes), etag: None, checksums })
}

/// A hash on its way.
enum Running {
    Crc(Algorithm, Box<Hasher>),
    Md5(Md5),
}

impl Running {
    fn new(name: HashName) -> Running {
        let algorithm = match name {
            HashName::Crc64nvme => Algorithm::Crc64Nvme,
            HashName::Crc64xz => Algorithm::Crc64Xz,
            HashName::Crc32c => Algorithm::Crc32c,
            HashName::Md5 => return Running::Md5(Md5::new()),
        };
        Running::Crc(algorithm, Box::new(Hasher::new(algorithm)))
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Running::Crc(_, hasher) => hasher.update(bytes),
            Running::Md5(hasher) => hasher.update(bytes),
        }
    }

    /// As an origin's header has it; MD5 as an ETag has it.
    fn finish(self) -> String {
        match self {
            Running::Crc(algorithm, hasher) => algorithm.encode(hasher.value()),
            Running::Md5(hasher) => hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

fn name(name: HashName) -> &'static str {
    match name {
        HashName::Crc64nvme => Algorithm::Crc64Nvme.name(),
        HashName::Crc64xz => Algorithm::Crc64Xz.name(),
        HashName::Crc32c => Algorithm::Crc32c.name(),
        HashName::Md5 => "md5",
    }
}
