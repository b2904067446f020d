//! A connection that outlives the session that serves it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use flatout_mount::{LastingMount, Observer, Options, Session};

use crate::model::{HELLO, Model, ROOT};
use crate::raw::{Kernel, init, name, op};

const HAS_RESEND: u64 = 1 << 39;
const NOTIFY_RESEND: i32 = 7;
const RESENT: u64 = 1 << 63;
const SOON: Duration = Duration::from_secs(10);

fn options() -> Options {
    Options { threads: 2, ..Options::new("model", "/nowhere") }
}

fn lasting(flags: u64) -> (Kernel, LastingMount) {
    let (mut kernel, device) = Kernel::with_device();
    let unique = kernel.send(op::INIT, 0, &init(7, 45, flags));
    let mount = LastingMount::of_descriptor(device, &options()).unwrap();
    let answer = kernel.answer();
    assert_eq!((answer.unique, answer.error), (unique, 0));
    (kernel, mount)
}

fn served(mount: &LastingMount, model: &Arc<Model>, takes_over: bool) -> Session {
    let mount = mount.try_clone().unwrap();
    mount.serve(model.clone(), &options(), Observer::default(), takes_over).unwrap()
}

#[test]
fn another_process_has_requests_sent_again() {
    let (mut kernel, mount) = lasting(u64::MAX);
    assert!(mount.resends());
    let model = Arc::new(Model::default());
    // A mount travels over a socket, with all that belongs to it.
    let (ours, theirs) = UnixStream::pair().unwrap();
    mount.send(&ours).unwrap();
    let mount = LastingMount::receive(&theirs).unwrap();
    mount.table().put(1, 2, b"three");
    let first = served(&mount, &model, false);
    kernel.ask(op::LOOKUP, ROOT, &name("hello")).unwrap();
    assert!(first.watch().pause(SOON));
    let unanswered = kernel.send(op::GETATTR, HELLO, &[0; 16]);
    assert_eq!(kernel.answer_within(Duration::from_millis(200)), None);
    // As if its process had ended.
    std::mem::forget(first);
    assert_eq!(mount.table().rows().unwrap(), [(1, 2, b"three".to_vec())]);
    let second = served(&mount, &model, true);
    let told = kernel.answer();
    assert_eq!((told.unique, told.error), (0, NOTIFY_RESEND));
    // One of the threads that have been paused may read it: they are of this very process.
    for _ in 0..100 {
        kernel.send_again(op::GETATTR, unanswered, HELLO, &[0; 16]);
        if let Some(answer) = kernel.answer_within(Duration::from_millis(100)) {
            assert_eq!((answer.unique, answer.error), (unanswered | RESENT, 0));
            std::mem::forget(second);
            return;
        }
    }
    panic!("nobody has answered");
}

#[test]
fn what_was_left_meanwhile_is_answered_by_who_goes_on() {
    let (mut kernel, mount) = lasting(u64::MAX);
    let model = Arc::new(Model::default());
    let session = served(&mount, &model, false);
    drop(mount);
    let watch = session.watch();
    assert!(watch.pause(SOON));
    let left: Vec<u64> = (0..20).map(|_| kernel.send(op::GETATTR, HELLO, &[0; 16])).collect();
    assert_eq!(kernel.answer_within(Duration::from_millis(200)), None);
    watch.resume();
    let mut answered: Vec<u64> = left.iter().map(|_| kernel.answer().unique).collect();
    answered.sort_unstable();
    assert_eq!(answered, left, "each once");
    assert!(kernel.ask(op::GETATTR, HELLO, &[0; 16]).is_ok());
    assert_eq!(kernel.answer_within(Duration::from_millis(50)), None);
    drop(watch);
    kernel.end(session);
}

#[test]
fn requests_that_wait_keep_it_from_a_pause() {
    let (mut kernel, mount) = lasting(u64::MAX);
    let model = Arc::new(Model::default());
    let session = served(&mount, &model, false);
    drop(mount);
    let waits = kernel.send(op::LOOKUP, ROOT, &name("stuck"));
    model.until("it waits", |state| state.waiting > 0);
    let watch = session.watch();
    assert!(!watch.pause(Duration::from_millis(50)));
    watch.resume();
    model.let_go();
    assert_eq!(kernel.answer().unique, waits);
    drop(watch);
    kernel.end(session);
}

#[test]
fn where_none_is_sent_again_they_fail() {
    let (mut kernel, mount) = lasting(!HAS_RESEND);
    assert!(!mount.resends());
    let model = Arc::new(Model::default());
    let first = served(&mount, &model, false);
    kernel.ask(op::LOOKUP, ROOT, &name("hello")).unwrap();
    let waits = kernel.send(op::LOOKUP, ROOT, &name("stuck"));
    model.until("it waits", |state| state.waiting > 0);
    std::mem::forget(first);
    let second = served(&mount, &model, true);
    let answer = kernel.answer();
    assert_eq!((answer.unique, answer.error), (waits, -libc::EIO));
    assert_eq!(kernel.answer_within(Duration::from_millis(50)), None, "the other was answered");
    std::mem::forget(second);
    model.let_go();
}
