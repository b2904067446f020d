//! What `Connection` makes of an answer is what hyper makes of it: over the corpus of the differential
//! fuzzer, through real sockets, however the bytes are cut. And it is what that fuzzer's reader makes of it,
//! which stands for them there. And what no origin of the other tests does: it takes nothing.

#[path = "../../../properties/tests/hold/answers.rs"]
mod answers;
#[path = "../../../properties/src/our_reader.rs"]
mod our_reader;

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use proptest::prelude::*;
use tokio::net::TcpStream;

use super::*;
use crate::memory::lease::Pool;
use crate::net::socket::connect;
use crate::net::tls::Tls;
use crate::sink::landing::{Landing, Sink};
use crate::sink::verify::Ledger;
use flatout_policy::receive_size::RECEIVE_BYTES;

/// Files of the corpus that the two read differently, each for a reason in docs/fuzzing.md.
const MEANT: [&str; 6] = [
    "found_empty_coding",
    "found_identity_beside_no_length",
    "found_odd_trailer",
    "found_switch",
    "gzip",
    "old_chunked",
];
const PATIENCE: Duration = Duration::from_secs(60);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n";

/// Status and body of an answer; `None` where there is none to be had.
type Answer = Option<(u16, Vec<u8>)>;

#[test]
fn answers_are_read_as_hyper_reads_them() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/differential");
    let mut differing = Vec::new();
    let files = std::fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut count = 0;
    for file in files.map(|file| file.expect("a file").path()) {
        let bytes = std::fs::read(&file).expect("a file");
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        count += 1;
        let hyper = asked_by(bytes.clone(), bytes.len(), by_hyper);
        // Whole, then byte by byte, then in between.
        for piece_bytes in [bytes.len(), 1, 7] {
            let collected = asked_by(bytes.clone(), piece_bytes, |address| by_us(address, By::Collecting));
            let landed = asked_by(bytes.clone(), piece_bytes, |address| by_us(address, By::Landing));
            assert_eq!(collected, landed, "{name} in pieces of {piece_bytes}");
            if landed != hyper {
                assert!(MEANT.contains(&&*name), "{name}: {landed:?}, to hyper {hyper:?}");
                differing.push(name.clone());
            }
        }
    }
    assert!(count >= 30, "{count} files");
    differing.sort();
    differing.dedup();
    assert_eq!(differing, MEANT, "MEANT names what does not differ any more");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_fuzzers_reader_reads_as_we_do(bytes in answers::answer(), piece_bytes in 1usize..80) {
        let expected = match our_reader::read(&[&bytes], Method::Get) {
            our_reader::Outcome::Delivered(our_reader::Answer { status, body }) => Some((status, body)),
            our_reader::Outcome::Refused(_) => None,
        };
        for by in [By::Collecting, By::Landing] {
            let read = asked_by(bytes.clone(), piece_bytes, |address| by_us(address, by));
            prop_assert_eq!(&read, &expected, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
}

/// What a client makes of an origin that says `bytes` in pieces and closes.
fn asked_by<F: Future<Output = Answer>>(
    bytes: Vec<u8>,
    piece_bytes: usize,
    ask: impl FnOnce(SocketAddr) -> F,
) -> Answer {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let origin = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("an option");
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            asked.extend(byte);
        }
        for piece in bytes.chunks(piece_bytes.max(1)) {
            // The client has closed, since it has heard enough.
            if stream.write_all(piece).is_err() {
                return;
            }
            thread::yield_now();
        }
        let _ = stream.shutdown(Shutdown::Write);
        // Until the client closes too: a reset could overtake what was said.
        let _ = stream.read(&mut [0]);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(address)).await });
    drop(runtime);
    origin.join().expect("the origin");
    answer.expect("an end")
}

/// The two ways in which a body is taken in.
#[derive(Clone, Copy)]
enum By {
    Collecting,
    Landing,
}

fn unweighed() -> MemoryCharge {
    std::sync::Arc::<crate::memory::lease::Pool>::default().charge(0)
}

async fn by_us(address: SocketAddr, by: By) -> Answer {
    let tls = Tls::new(None).expect("the system's certificates are not read yet");
    let (endpoint, _) = Endpoint::parse(&format!("http://{address}")).expect("an endpoint");
    let socket = connect(&endpoint, None, address, Ok(None), &tls, PATIENCE).await.expect("a connection");
    let mut connection =
        Connection::new(socket, endpoint, address, 0, Hedges::default(), PATIENCE, unweighed());
    let head = connection.exchange(REQUEST, Method::Get).await.ok()?;
    let bytes = match by {
        By::Collecting => {
            let mut bytes = Vec::new();
            connection.collect_within(1 << 20, &mut bytes, |_| {}).await.ok()?;
            bytes
        }
        By::Landing => landed(&mut connection).await?,
    };
    Some((head.status, bytes))
}

/// Receives into a file by the road of a part.
async fn landed(connection: &mut Connection) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let target = folder.path().join("body");
    let sink = Sink::open(Landing::File(target.clone()), false).expect("a new file");
    let scratch = RefCell::new(Arc::new(Pool::default()).lease(RECEIVE_BYTES).expect("memory"));
    let mut place = sink.place(0, 0, Ledger::default().start_part());
    while connection.receive(&mut place, &scratch, u64::MAX).await.ok()? > 0 {}
    sink.commit(place.filled()).expect("a rename");
    Some(std::fs::read(&target).expect("the file"))
}

async fn by_hyper(address: SocketAddr) -> Answer {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.ok()?;
    let connection = tokio::spawn(connection);
    let asked = hyper::Request::get("/").header("host", "h").body(Empty::<Bytes>::new()).expect("a request");
    let answer = async {
        let answer = sender.send_request(asked).await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.into_body().collect().await.ok()?.to_bytes().to_vec()))
    };
    let answer = answer.await;
    connection.abort();
    answer
}

#[test]
fn an_origin_that_takes_nothing_held_a_request_for_ever() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let (endpoint, _) = Endpoint::parse(&format!("http://{address}")).expect("an endpoint");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let refused = runtime.block_on(async {
        let tls = Tls::new(None).expect("no bundle");
        let within = Duration::from_secs(10);
        let socket =
            connect(&endpoint, None, address, Ok(None), &tls, within).await.expect("the kernel takes it");
        let patience = Duration::from_millis(200);
        let mut connection =
            Connection::new(socket, endpoint, address, 0, Hedges::default(), patience, unweighed());
        // More than both sockets' buffers hold.
        connection.exchange(&vec![b'x'; 64 << 20], Method::Get).await.expect_err("nobody reads")
    });
    assert_eq!(refused.kind(), ErrorKind::Timeout);
    assert!(refused.to_string().contains("nothing could be sent in time"), "{refused}");
}
