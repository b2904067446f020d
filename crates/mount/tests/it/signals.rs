//! Who waits can always leave: INTERRUPT by its bytes, and real readers that are killed.

use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::held::{Held, until};
use crate::model::*;
use crate::raw::*;
use crate::reader::Reader;

/// Long enough for an answer that must not come to come.
const SILENCE: Duration = Duration::from_millis(300);

/// A process that has a signal to handle, and never does: it is stopped.
struct Handler(Child);

impl Handler {
    fn new() -> Handler {
        let stops = ["-c", "trap : USR1; kill -STOP $$"];
        let handler = Handler(Command::new("sh").args(stops).spawn().unwrap());
        let status = || std::fs::read_to_string(format!("/proc/{}/status", handler.0.id())).unwrap();
        until(|| status().contains("State:\tT").then_some(()));
        let pid = Pid::from_raw(handler.0.id() as i32).unwrap();
        rustix::process::kill_process(pid, Signal::USR1).unwrap();
        handler
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn handle_of(body: &[u8]) -> u64 {
    u64::from_ne_bytes(body[..8].try_into().unwrap())
}

/// The kernel marks an INTERRUPT by the lowest bit of what it is about.
fn interrupt(kernel: &Kernel, about: u64) {
    kernel.send_bytes(&request(op::INTERRUPT, about | 1, 0, 0, &longs(&[about])));
}

#[test]
fn a_waiting_lookup_is_interrupted_and_undone() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    let stuck = kernel.send(op::LOOKUP, ROOT, &name("stuck"));
    model.until("it waits", |state| state.waiting == 1);
    // Others are served meanwhile.
    assert!(kernel.ask(op::GETATTR, ROOT, &[0; 16]).is_ok());
    interrupt(&kernel, stuck);
    let answer = kernel.answer();
    assert_eq!((answer.unique, answer.error), (stuck, -libc::EINTR));
    assert_eq!(session.stats().interrupted, 1);
    model.let_go();
    // The lookup was counted, the kernel never heard of it, and it is forgotten.
    model.until("it is undone", |state| state.waiting == 0 && state.lookups.get(&STUCK) == Some(&0));
    assert_eq!(kernel.answer_within(SILENCE), None);
    kernel.end(session);
}

#[test]
fn a_waiting_open_is_interrupted_and_undone() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    let stuck = kernel.send(op::OPEN, STUCK_OPEN, &words(&[0, 0]));
    model.until("it waits", |state| state.waiting == 1);
    interrupt(&kernel, stuck);
    assert_eq!(kernel.answer().error, -libc::EINTR);
    model.let_go();
    model.until("it is released", |state| state.handles == 1 && state.files.is_empty());
    kernel.end(session);
}

#[test]
fn a_waiting_read_is_interrupted_and_cancelled() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    let handle = handle_of(&kernel.ask(op::OPEN, STUCK_READ, &words(&[0, 0])).unwrap());
    let stuck = kernel.send(op::READ, STUCK_READ, &read(handle, 0, 4096));
    model.until("it waits", |state| state.stuck_reads.len() == 1);
    assert_eq!(session.stats().waiting, 1);
    interrupt(&kernel, stuck);
    let answer = kernel.answer();
    assert_eq!((answer.unique, answer.error), (stuck, -libc::EINTR));
    until(|| (model.cancelled.load(SeqCst) == 1).then_some(()));
    // Bytes that come all the same are no second answer.
    let late = model.state().stuck_reads.pop().unwrap();
    late(Ok(&mut [&b"late"[..]].into_iter()));
    assert_eq!(kernel.answer_within(SILENCE), None);
    assert_eq!(session.stats().waiting, 0);
    kernel.end(session);
}

#[test]
fn an_interrupt_before_its_request_is_sent_again() {
    let (mut kernel, session) = Kernel::serve(&Arc::default());
    interrupt(&kernel, 4242);
    let answer = kernel.answer();
    assert_eq!((answer.unique, answer.error), (4243, -libc::EAGAIN));
    // And after it, when the kernel does not listen any more.
    let hello = kernel.send(op::LOOKUP, ROOT, &name("hello"));
    assert_eq!(kernel.answer().unique, hello);
    interrupt(&kernel, hello);
    assert_eq!(kernel.answer().error, -libc::EAGAIN);
    kernel.end(session);
}

#[test]
fn who_handles_a_signal_waits_a_little_longer() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    // It lives, and a signal is on its way to it that it handles.
    let handler = Handler::new();
    kernel.pid = handler.0.id();
    let first = kernel.send(op::LOOKUP, ROOT, &name("stuck"));
    model.until("it waits", |state| state.waiting == 1);
    interrupt(&kernel, first);
    assert_eq!(kernel.answer_within(SILENCE), None);
    // In the end it goes as well.
    let answer = kernel.answer();
    assert_eq!((answer.unique, answer.error), (first, -libc::EINTR));
    // Who is only stopped waits for its answer.
    kernel.pid = std::process::id();
    let stopped = kernel.send(op::LOOKUP, ROOT, &name("stuck"));
    model.until("another waits", |state| state.waiting == 2);
    interrupt(&kernel, stopped);
    assert_eq!(kernel.answer_within(Duration::from_millis(2500)), None);
    // Of a process that is gone nobody can tell.
    kernel.pid = i32::MAX as u32;
    let second = kernel.send(op::LOOKUP, ROOT, &name("stuck"));
    model.until("all wait", |state| state.waiting == 3);
    interrupt(&kernel, second);
    let answer = kernel.answer();
    assert_eq!((answer.unique, answer.error), (second, -libc::EINTR));
    model.let_go();
    assert_eq!(kernel.answer().unique, stopped);
    kernel.end(session);
}

#[test]
fn the_end_finds_everybody_who_waits() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    let handle = handle_of(&kernel.ask(op::OPEN, STUCK_READ, &words(&[0, 0])).unwrap());
    for at in 0..50 {
        kernel.send(op::READ, STUCK_READ, &read(handle, at, 10));
    }
    model.until("all wait", |state| state.stuck_reads.len() == 50);
    kernel.end(session);
    assert_eq!(model.cancelled.load(SeqCst), 50);
}

#[test]
fn a_killed_reader_is_gone() {
    use rustix::process::Signal;
    // A lookup, an open, a read: buffered and direct. Each is in the kernel, with nobody to answer it.
    for (script, name) in [
        ("exec cat \"$POINT/stuck\"", "lookup"),
        ("exec cat \"$POINT/stuck-open\"", "open"),
        ("exec cat \"$POINT/stuck-read\"", "read"),
        ("exec dd if=\"$POINT/stuck-read\" of=/dev/null bs=1M iflag=direct", "direct read"),
    ] {
        for signal in [Signal::KILL, Signal::TERM] {
            let held = Held::new();
            let mut reader = Reader::of(&held, script);
            held.model.until("it waits", |state| state.waiting + state.stuck_reads.len() > 0);
            reader.signal(signal);
            let status = reader.end();
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&status),
                Some(signal.as_raw()),
                "{name}"
            );
        }
    }
}
