//! Faults of the socket under TLS.

use std::io::{ErrorKind, Read, Write};

use flatout_server::{FaultKind, FaultPlan, Identity, Options, Origin, Store};
use tokio_rustls::rustls::{ClientConnection, StreamOwned, pki_types::ServerName, version::TLS13};

use super::always;
use crate::client::{Answer, connect, options, parse};
use crate::tls::{client, trusted};

const SIZE: usize = 3_000_001;

/// One GET of an object in a file, and how its connection ended.
fn get(fault_plan: FaultPlan) -> (Answer, Option<ErrorKind>, Vec<u8>) {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::create_dir(root.path().join("bucket")).unwrap();
    let bytes = crate::client::bytes("sealed", SIZE);
    std::fs::write(root.path().join("bucket/k"), &bytes).unwrap();
    let (identity, authority) = Identity::for_this_run(&[]).unwrap();
    let store = Store::Root(root.path().to_owned());
    let origin = Origin::start(Options { tls: Some(identity), fault_plan, ..options(store) }).unwrap();
    let config = client(&trusted(&authority), &TLS13);
    let session = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut stream = StreamOwned::new(session, connect(origin.addresses()[0]));
    stream.write_all(b"GET /bucket/k HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer).err().map(|error| error.kind());
    (parse(&answer), ended, bytes)
}

#[test]
fn a_reset_is_one_under_tls() {
    let (answer, ended, bytes) = get(always(FaultKind::Reset));
    assert_eq!(ended, Some(ErrorKind::ConnectionReset));
    assert!(answer.body.len() < SIZE && bytes.starts_with(&answer.body));
}

#[test]
fn a_truncated_body_says_goodbye_as_tls_does() {
    let (answer, ended, bytes) = get(always(FaultKind::Truncate));
    // rustls tells an end without close_notify by an error.
    assert_eq!(ended, None);
    assert!(answer.body.len() < SIZE && bytes.starts_with(&answer.body));
}

#[test]
fn what_is_flipped_or_stalled_under_tls_comes_whole() {
    let (answer, ended, bytes) = get(always(FaultKind::Flip));
    assert_eq!((answer.body.len(), ended), (SIZE, None));
    assert_eq!(answer.body.iter().zip(&bytes).filter(|(came, meant)| came != meant).count(), 1);
    let (answer, ended, bytes) = get(always(FaultKind::Stall(std::time::Duration::from_millis(100))));
    assert!(answer.body == bytes && ended.is_none());
}
