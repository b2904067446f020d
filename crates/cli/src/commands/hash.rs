//! `flatout hash`: checksums of files, and those that origins state of objects.

use std::fs::File;
use std::io::{self, Read};

use flatout_engine::{Dialect, Stat};
use flatout_wire::checksum;

use crate::args::{Hash, HashName};
use crate::commands::stat::checksum_event;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::hashing::{self, Algorithm};
use crate::{origin, outages};

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
    let wanted = |name: &str| {
        args.algorithm.is_empty() || args.algorithm.iter().any(|one| algorithm(*one).name() == name)
    };
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
    let algorithms: Vec<Algorithm> = names.iter().map(|name| algorithm(*name)).collect();
    let mut input: Box<dyn Read> = match typed {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(File::open(path).map_err(unread)?),
    };
    let (bytes, sums) = hashing::read_to_end(&mut input, &algorithms).map_err(unread)?;
    let checksums = algorithms.iter().zip(sums).map(|(algorithm, sum)| events::Checksum {
        algorithm: algorithm.name(),
        value: algorithm.encode(sum),
        composite_of: None,
    });
    let checksums = checksums.collect();
    Ok(events::Hash { source: typed.to_owned(), bytes: Some(bytes), etag: None, checksums })
}

fn algorithm(name: HashName) -> Algorithm {
    match name {
        HashName::Crc64nvme => Algorithm::Crc(checksum::Algorithm::Crc64Nvme),
        HashName::Crc64xz => Algorithm::Crc(checksum::Algorithm::Crc64Xz),
        HashName::Crc32c => Algorithm::Crc(checksum::Algorithm::Crc32c),
        HashName::Md5 => Algorithm::Md5,
    }
}
