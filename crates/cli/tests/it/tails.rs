//! Tails: what stalls, dies or is slow costs little. Requests are counted by the tunnel's log; nothing here
//! looks at how long anything took, but a run that waits for what it must not wait for takes ten minutes, and
//! is ended long before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::{fs, io, thread};

use flatout_server::{Fault, FaultKind, FaultPlan, Listen, Options, Origin, Store, WriteFault};
use serde_json::Value;

use crate::folder::Folder;
use crate::program::{flatout, run};

use std::time::Duration;

const BYTES: u64 = 8 << 20;
/// Longer than a run may take.
const LONG: Duration = Duration::from_secs(600);

/// A request for a range, as the origin saw it.
#[derive(Debug)]
struct Get {
    first: u64,
    last: u64,
    bytes: u64,
    fault: Option<String>,
    listener: u64,
}

fn gets(log: &Path) -> Vec<Get> {
    let text = fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let number = |value: &Value| value.as_u64().unwrap();
    lines
        .filter(|line| line["method"] == "GET" && line["range"].is_array())
        .map(|line| Get {
            first: number(&line["range"][0]),
            last: number(&line["range"][1]),
            bytes: number(&line["bytes"]),
            fault: line["fault"].as_str().map(String::from),
            listener: number(&line["listener"]),
        })
        .collect()
}

/// An origin on these addresses of loopback, all with one port; the address of each.
fn origin(options: &Options, listen: impl Fn(u8, u16) -> Listen) -> Origin {
    loop {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let listen = (1..=4).map(|last| listen(last, free.port())).collect();
        match Origin::start(Options { listen, ..options.clone() }) {
            Ok(origin) => return origin,
            // Another test has taken the port in between.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}"),
        }
    }
}

fn live(last: u8, port: u16) -> Listen {
    SocketAddr::from(([127, 0, 0, last], port)).into()
}

fn options(log: &Path) -> Options {
    let store = Store::Synthetic(vec![("demo".into(), "object".into(), BYTES)], vec![]);
    let fault_plan = FaultPlan { log: Some(log.to_owned()), ..FaultPlan::default() };
    Options { fault_plan, ..Options::new(store) }
}

/// Copies the object; the event of it, and what the origin was asked for.
fn copy(origin: Origin, log: &Path, more: &[&str]) -> (Value, Vec<Get>) {
    let port = origin.addresses()[0].port();
    let event = fetch(port, "127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4", more);
    origin.stop().unwrap();
    (event, gets(log))
}

/// Copies the object from that port of these addresses; the event of it.
fn fetch(port: u16, addresses: &str, more: &[&str]) -> Value {
    let folder = Folder::new();
    let resolve = format!("localhost:{port}:{addresses}");
    let (endpoint, target) = (format!("http://localhost:{port}"), folder.at("new"));
    let base = ["cp", "s3://demo/object", &target, "--endpoint-url", &endpoint, "--json"];
    let patience = ["--connect-timeout", "10m", "--stall-timeout", "20m", "--retries", "3"];
    let size = ["--part-size", "128KiB", "--parallel", "8", "--resolve", &resolve];
    let ended = run(&mut flatout(&[&base[..], &patience, &size, more].concat())).clean();
    let event = ended.events().into_iter().find(|event| event["event"] == "object").unwrap();
    assert_eq!((&event["status"], &event["verified"]), (&"ok".into(), &"crc64nvme".into()), "{event}");
    event
}

/// Hands on what connects to it, and knows where that came from.
struct Relay {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: JoinHandle<BTreeSet<IpAddr>>,
}

impl Relay {
    fn to(origin: SocketAddr) -> Relay {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let accepting = thread::spawn(move || {
            let mut peers = BTreeSet::new();
            loop {
                let (near, peer) = listener.accept().unwrap();
                if over.load(Ordering::SeqCst) {
                    return peers;
                }
                peers.insert(peer.ip());
                let far = TcpStream::connect(origin).unwrap();
                for (from, to) in [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))] {
                    let (mut from, mut to) = (from.unwrap(), to.unwrap());
                    thread::spawn(move || {
                        // Either may go when it likes.
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        Relay { address, is_over, accepting }
    }

    /// The addresses that connected.
    fn peers(self) -> BTreeSet<IpAddr> {
        self.is_over.store(true, Ordering::SeqCst);
        // So that it looks.
        TcpStream::connect(self.address).unwrap();
        self.accepting.join().unwrap()
    }
}

/// A part is sent whole by one connection only: by the second where the first stalls within it.
#[test]
fn a_part_that_stalls_on_its_way_up_is_sent_on_another_connection() {
    // A busy machine is silent, too, and may take a stall for that: it is then sent again after a minute.
    assert!((0..3).any(|_| sent_beside_a_stall() > 0), "no part is sent beside one that stalls");
}

/// How many parts were sent a second time while the first still stalled.
fn sent_beside_a_stall() -> u64 {
    const PART: u64 = 32 << 20;
    let (folder, aside) = (Folder::new(), tempfile::tempdir().unwrap());
    let log = aside.path().join("log");
    let mut options = Options { sink: true, ..options(&log) };
    // One stalls early: what the system holds of a connection is far less than the rest of the part.
    options.fault_plan.seed = 5;
    let stall = FaultKind::Write(WriteFault::Stall(LONG));
    options.fault_plan.faults = vec![Fault { chance: 0.3, kind: stall }];
    let origin = origin(&options, live);
    let port = origin.addresses()[0].port();
    fs::File::create(folder.at("file")).unwrap().set_len(6 * PART).unwrap();
    let resolve = format!("localhost:{port}:127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4");
    let endpoint = format!("http://localhost:{port}");
    let base = ["cp", &folder.at("file"), "s3://demo/new", "--endpoint-url", &endpoint, "--json"];
    // A busy machine is silent, too, and may spend the hedges of one that stalls: that is then sent again.
    let patience = ["--stall-timeout", "60s", "--retries", "3", "--resolve", &resolve];
    let size = ["--part-size", "32MiB", "--parallel", "3"];
    let ended = run(&mut flatout(&[&base[..], &patience, &size].concat())).clean();
    origin.stop().unwrap();
    let event = ended.events().into_iter().find(|event| event["event"] == "object").unwrap();
    assert_eq!((&event["status"], &event["verified"]), (&"ok".into(), &"crc64nvme".into()), "{event}");
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let parts: Vec<_> = lines.iter().filter(|line| line["step"] == "part").collect();
    let stalled: Vec<_> = parts.iter().filter(|part| part["fault"] == "put-stall").collect();
    assert!(!stalled.is_empty(), "another seed: {text}");
    let [hedged, retries] = ["hedged", "retries"].map(|name| event[name].as_u64().unwrap());
    for stalled in &stalled {
        assert_eq!(stalled["status"], Value::Null, "it is left: {stalled}");
        let taken = |part: &&&Value| part["part"] == stalled["part"] && part["status"] == 200;
        let [other] = parts.iter().filter(taken).collect::<Vec<_>>()[..] else {
            panic!("it is taken once: {text}");
        };
        assert!(retries > 0 || other["listener"] != stalled["listener"], "at another address: {text}");
    }
    assert!(hedged + retries >= stalled.len() as u64, "{event}");
    hedged
}

#[test]
fn a_body_that_stalls_is_asked_for_again_from_where_it_stopped() {
    let aside = tempfile::tempdir().unwrap();
    let log = aside.path().join("log");
    let mut options = options(&log);
    options.fault_plan.seed = 5;
    options.fault_plan.faults = vec![Fault { chance: 0.03, kind: FaultKind::Stall(LONG) }];
    let (event, gets) = copy(origin(&options, live), &log, &[]);
    let stalled: Vec<_> = gets.iter().filter(|get| get.fault.is_some()).collect();
    assert!(!stalled.is_empty(), "another seed: {gets:?}");
    for stalled in &stalled {
        let other = gets.iter().find(|get| get.last == stalled.last && get.first > stalled.first);
        // A head may bring a few bytes that land with what follows them only.
        let other = other.or_else(|| gets.iter().find(|get| get.last == stalled.last && get.fault.is_none()));
        let other = other.unwrap_or_else(|| panic!("nobody else brought the rest of {stalled:?}: {gets:?}"));
        assert!(other.first + (4 << 10) >= stalled.first + stalled.bytes, "{other:?} after {stalled:?}");
        assert_ne!(other.listener, stalled.listener, "at another address");
    }
    // A busy machine may have been silent, too.
    assert!(event["hedged"].as_u64() >= Some(stalled.len() as u64), "{event}");
    assert_eq!((&event["retries"], &event["fetched"]), (&0.into(), &BYTES.into()), "{event}");
    let sent: u64 = gets.iter().map(|get| get.bytes).sum();
    assert!(sent <= BYTES + BYTES / 8, "{sent} bytes left the origin, {BYTES} are wanted");
}

#[test]
fn a_dead_address_is_waited_for_by_nobody() {
    let aside = tempfile::tempdir().unwrap();
    let log = aside.path().join("log");
    for dead in [1, 3] {
        let listen = |last, port| Listen { dead: last == dead, ..live(last, port) };
        let (event, gets) = copy(origin(&options(&log), listen), &log, &[]);
        assert_eq!(event["retries"], 0, "{event}");
        let used: BTreeMap<u64, usize> = gets.iter().fold(BTreeMap::new(), |mut used, get| {
            *used.entry(get.listener).or_default() += 1;
            used
        });
        assert_eq!(used.len(), 3, "every other address is used: {used:?}");
        fs::remove_file(&log).unwrap();
    }
}

#[test]
fn what_an_address_is_too_slow_for_others_bring() {
    let aside = tempfile::tempdir().unwrap();
    let log = aside.path().join("log");
    // What it is asked for at first would take it two minutes.
    let slow = |last, port| Listen { rate: (last == 2).then_some(2 << 10), ..live(last, port) };
    let mut options = options(&log);
    options.per_connection = Some(1 << 20);
    let (event, gets) = copy(origin(&options, slow), &log, &[]);
    let moved = event["moved"].as_u64().unwrap() + event["hedged"].as_u64().unwrap();
    assert!((1..=8).contains(&moved), "{event}");
    let slow: u64 = gets.iter().filter(|get| get.listener == 1).count() as u64;
    assert!(slow >= 1 && slow <= moved + 1, "{slow} requests to the slow address: {gets:?}");
    assert_eq!(event["fetched"], BYTES, "{event}");
}

#[test]
fn connections_leave_from_the_addresses_that_bind_names() {
    let aside = tempfile::tempdir().unwrap();
    let log = aside.path().join("log");
    let mut options = options(&log);
    // So that one connection does not bring everything before there is a second.
    options.per_connection = Some(2 << 20);
    let origin = origin(&options, live);
    let from = |more: &[&str]| {
        let relay = Relay::to(origin.addresses()[0]);
        fetch(relay.address.port(), "127.0.0.1", more);
        relay.peers()
    };
    let loopback = |last| IpAddr::from([127, 0, 0, last]);
    let bound = from(&["--bind", "127.0.0.8", "--bind", "127.0.0.9"]);
    assert_eq!(bound, [loopback(8), loopback(9)].into());
    assert_eq!(from(&[]), [loopback(1)].into(), "where nothing is said");
    origin.stop().unwrap();
    let refused = run(&mut flatout(&["ls", "s3://demo", "--bind", "192.0.2.1"]));
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains("'192.0.2.1' is not an address of this machine"), "{}", refused.stderr);
}
