//! Bad weather: each fault in both dialects, over every kind of store, and what the log says of it.

mod bodies;
mod errors;
mod lines;
mod listeners;
mod replaced;
mod sealed;
mod throttled;
mod written;

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;

use flatout_server::{Fault, FaultKind, FaultPlan, Options, Origin, Store};

use crate::client::{Answer, Headers, connect, options, parse, send, write_head};

pub const S3: Headers = &[("x-amz-checksum-mode", "ENABLED")];
pub const OSS: Headers = &[("x-oss-range-behavior", "standard")];

/// Both dialects.
pub const DIALECTS: [Headers; 2] = [S3, OSS];

pub fn always(kind: FaultKind) -> FaultPlan {
    sometimes(1.0, kind)
}

pub fn sometimes(chance: f64, kind: FaultKind) -> FaultPlan {
    FaultPlan { faults: vec![Fault { chance, kind }], ..FaultPlan::default() }
}

/// An origin with the object `bucket/k` of these many computed bytes, and those bytes.
pub fn origin(size: usize, fault_plan: FaultPlan) -> (Origin, Vec<u8>) {
    let store = Store::Synthetic(vec![("bucket".to_owned(), "k".to_owned(), size as u64)], vec![]);
    let mut bytes = vec![0; size];
    flatout_server::synthetic_bytes("bucket", "k", 0..size as u64, &mut bytes);
    (Origin::start(Options { fault_plan, ..options(store) }).unwrap(), bytes)
}

/// Origins over every kind of store with the same object; bytes are those of [`origin`].
pub fn each_store(size: usize, fault_plan: &FaultPlan, test: impl Fn(SocketAddr, &[u8])) {
    let (synthetic, bytes) = origin(size, fault_plan.clone());
    test(synthetic.addresses()[0], &bytes);
    let memory = Origin::start(Options { fault_plan: fault_plan.clone(), ..options(Store::Memory) }).unwrap();
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::Root(root.path().to_owned());
    let files = Origin::start(Options { fault_plan: fault_plan.clone(), ..options(store) }).unwrap();
    for origin in [memory, files] {
        let address = origin.addresses()[0];
        send(address, "PUT", "/bucket", &[], b"").expect(200);
        send(address, "PUT", "/bucket/k", &[], &bytes).expect(200);
        test(address, &bytes);
    }
}

/// One GET on a connection of its own, and how its connection ended; the body as far as it came.
pub fn get(address: SocketAddr, target: &str, headers: Headers) -> (Answer, Option<ErrorKind>) {
    let mut connection = connect(address);
    write_head(&mut connection, "GET", target, headers, 0);
    let mut bytes = Vec::new();
    let ended = connection.read_to_end(&mut bytes).err().map(|error| error.kind());
    (parse(&bytes), ended)
}
