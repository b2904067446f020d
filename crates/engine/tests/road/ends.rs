//! Who wants to be called at the end of a transfer is called once, after it, however it came.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use flatout_engine::{Client, ErrorKind, Get, Landing, Transfer};

use super::origin::{Origin, Reply, object, right};
use super::{SIZE, config, location};

/// Longer than any of these takes.
const LONG: Duration = Duration::from_secs(20);

/// An end that comes by the word of the thread that was called.
struct CalledAtEnd(Receiver<String>);

impl CalledAtEnd {
    /// Once, and by a shard.
    #[track_caller]
    fn check(self) {
        let thread = self.0.recv_timeout(LONG).expect("it is called");
        assert!(thread.starts_with("flatout-"), "{thread}");
        assert!(self.0.recv_timeout(LONG).is_err(), "what was called is gone");
    }
}

fn get(client: &Client, origin: &Origin) -> (Transfer, CalledAtEnd) {
    let (tell, told) = channel();
    let get = Get::new(location(origin), Landing::Nowhere).on_end(move || {
        let _ = tell.send(std::thread::current().name().unwrap_or_default().to_owned());
    });
    (client.get(get).expect("a start"), CalledAtEnd(told))
}

fn good() -> Origin {
    Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))))
}

fn silent() -> Origin {
    Origin::start(|_| Reply::Hang(Vec::new()))
}

fn client() -> Client {
    let mut config = config();
    config.settings.stall_timeout_ms = 60_000;
    config.settings.shards = 2;
    Client::new(config).expect("good settings")
}

#[test]
fn a_success_and_a_failure_call_when_nobody_has_to_wait_any_more() {
    let refuses = Origin::start(|_| Reply::Keep(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n".to_vec()));
    let client = client();
    for (origin, expected) in [(good(), None), (refuses, Some(ErrorKind::NotFound))] {
        let (transfer, called) = get(&client, &origin);
        called.check();
        assert!(transfer.wait_timeout(Duration::ZERO), "it is settled before anybody is called");
        assert_eq!(transfer.wait().err().map(|error| error.kind()), expected);
    }
}

#[test]
fn a_cancel_and_a_drop_call() {
    let (origin, client) = (silent(), client());
    let (transfer, called) = get(&client, &origin);
    transfer.cancel_switch().cancel();
    called.check();
    assert_eq!(transfer.wait().expect_err("cancelled").kind(), ErrorKind::Cancelled);
    let (transfer, called) = get(&client, &origin);
    drop(transfer);
    called.check();
}

#[test]
fn a_client_that_is_closed_calls() {
    let origin = silent();
    let closed = client();
    let (transfer, called) = get(&closed, &origin);
    drop(closed);
    called.check();
    assert_eq!(transfer.wait().expect_err("closed").kind(), ErrorKind::Cancelled);
}

#[test]
fn the_end_is_there_for_who_is_called() {
    // Whoever is called takes the transfer, and waits for it or drops it.
    let (origin, client) = (good(), client());
    for drops in [false, true] {
        let (give, given) = channel::<Transfer>();
        let (tell, told) = channel();
        let asked = Get::new(location(&origin), Landing::Nowhere).on_end(move || {
            let transfer = given.recv().expect("it is given");
            let bytes = if drops { None } else { transfer.wait().ok().map(|report| report.bytes) };
            let _ = tell.send(bytes);
        });
        give.send(client.get(asked).expect("a start")).expect("it is taken");
        assert_eq!(told.recv_timeout(LONG), Ok((!drops).then_some(SIZE)));
    }
}

#[test]
fn a_panic_of_who_is_called_ends_nothing_else() {
    let origin = good();
    let mut config = config();
    config.settings.shards = 1;
    let client = Client::new(config).expect("good settings");
    let beside = client.get(Get::new(location(&origin), Landing::Nowhere)).expect("a start");
    let panics = Get::new(location(&origin), Landing::Nowhere).on_end(|| panic!("as the test wants it"));
    let transfer = client.get(panics).expect("a start");
    assert_eq!(transfer.wait().expect("its bytes have landed").bytes, SIZE);
    assert_eq!(beside.wait().expect("the shard goes on").bytes, SIZE);
    let (_after, called) = get(&client, &origin);
    called.check();
}

#[test]
fn what_cannot_be_begun_calls_nobody() {
    let origin = good();
    let (client, kept) = (client(), Arc::new(()));
    let held = kept.clone();
    let nowhere = Landing::File("/no/such/folder/file".into());
    let asked = Get::new(location(&origin), nowhere).on_end(move || panic!("called {held:?}"));
    assert_eq!(client.get(asked).err().map(|error| error.kind()), Some(ErrorKind::LocalIo));
    assert_eq!(Arc::strong_count(&kept), 1, "what would have been called is gone");
}

/// Run by the test below, in a process of its own: the limit of open files is the process's.
#[test]
#[ignore = "lowers the limit of open files of its process"]
fn without_files_a_shard_is_refused() {
    let origin = good();
    let client = Client::new(config()).expect("good settings");
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let none_left = rustix::process::Rlimit { current: Some(3), ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, none_left).expect("it may be lowered");
    let refused =
        client.get(Get::new(location(&origin), Landing::Nowhere)).err().expect("no descriptor is left");
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("it may be raised again");
    assert_eq!(refused.kind(), ErrorKind::LocalIo, "{refused}");
    assert!(refused.hint().is_some(), "{refused}");
    let (transfer, _called) = get(&client, &origin);
    transfer.wait().expect("with files it starts after all");
}

#[test]
fn a_process_without_files_left_panicked_in_a_new_shard() {
    let program = std::env::current_exe().expect("this program");
    let name = "ends::without_files_a_shard_is_refused";
    let ran =
        std::process::Command::new(program).args(["--ignored", "--exact", name]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && said.contains("1 passed"),
        "{said}\n{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
