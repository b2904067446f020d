//! Whoever of the driver dies, pods read and write on, or are told.
//!
//! FLATOUT_KILLS=50 cargo test -p flatout-cli --test it csi::deaths     as many kills of each

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{Node, Wanted, text};
use crate::objects::{Buckets, bytes};
use crate::program::{signal, wait_until};

/// Kills of each process in a test.
pub fn kills() -> usize {
    std::env::var("FLATOUT_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(4)
}

/// Reads a file again and again at random places, and says how long the longest read took.
struct Reader {
    stop: Arc<AtomicBool>,
    longest: Arc<Mutex<Duration>>,
    thread: Option<thread::JoinHandle<Result<u64, String>>>,
}

impl Reader {
    fn start(path: std::path::PathBuf, content: Vec<u8>) -> Reader {
        let stop = Arc::<AtomicBool>::default();
        let longest = Arc::<Mutex<Duration>>::default();
        let (ends, slowest) = (stop.clone(), longest.clone());
        let work = move || {
            let file = File::open(path).map_err(|error| format!("open: {error}"))?;
            let (mut at, mut reads, mut block) = (0_usize, 0, vec![0; 128 << 10]);
            while !ends.load(Ordering::SeqCst) {
                let began = Instant::now();
                let most = block.len().min(content.len() - at);
                file.read_exact_at(&mut block[..most], at as u64)
                    .map_err(|error| format!("read: {error}"))?;
                if block[..most] != content[at..at + most] {
                    return Err(format!("other bytes at {at}"));
                }
                let mut slowest = slowest.lock().unwrap();
                *slowest = began.elapsed().max(*slowest);
                drop(slowest);
                at = (at + 7 * block.len()) % (content.len() - block.len());
                reads += 1;
            }
            Ok(reads)
        };
        Reader { stop, longest, thread: Some(thread::spawn(work)) }
    }

    /// The longest read since this was asked last.
    fn longest(&self) -> Duration {
        std::mem::take(&mut *self.longest.lock().unwrap())
    }

    fn end(mut self) -> Result<u64, String> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Writes one file after the other, each as a stream, and knows which of them were published. A process of
/// its own: one that this process starts closes what is open here, and that waits for an engine.
struct Writer {
    process: Child,
    folder: tempfile::TempDir,
}

/// Of each file.
const WRITTEN: usize = 16 << 20;

/// `$1` is a folder of its own, `$2` the volume.
const WRITE: &str = r#"
    seed=0
    while ! [ -e "$1/end" ]; do
        dd if="$1/content" of="$2/w-$seed" bs=64k conv=fsync 2>"$1/dd" && echo $seed || { echo failed; sleep 0.02; }
        seed=$((seed + 1))
    done >"$1/done"
"#;

impl Writer {
    fn start(volume: &Path) -> Writer {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("content"), bytes(WRITTEN)).unwrap();
        let process = Command::new("sh").args(["-c", WRITE, "sh"]).arg(folder.path()).arg(volume).spawn();
        Writer { process: process.unwrap(), folder }
    }

    /// What was acknowledged is there, byte for byte.
    fn end(mut self, bucket: &Path) {
        let done = || fs::read_to_string(self.folder.path().join("done")).unwrap_or_default();
        wait_until("a file is published", || done().lines().any(|line| line != "failed"));
        fs::write(self.folder.path().join("end"), "").unwrap();
        self.process.wait().unwrap();
        let done = done();
        let (failed, published): (Vec<&str>, Vec<&str>) = done.lines().partition(|line| *line == "failed");
        let content = bytes(WRITTEN);
        for seed in &published {
            let written = fs::read(bucket.join(format!("w-{seed}"))).unwrap();
            assert!(written == content, "w-{seed} was acknowledged, and is not what was written");
        }
        eprintln!("{} files were published, {} failed and said so", published.len(), failed.len());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

/// Descriptors of a process.
fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Between two kills: an engine that dies ten times in a row at once is given up.
fn breathe() {
    thread::sleep(Duration::from_millis(if kills() > 8 { 1_100 } else { 200 }));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Read without the page cache, so that each read is a request.
fn direct(wanted: Wanted) -> Wanted {
    wanted.with("direct-bytes", "1")
}

#[test]
fn an_engine_that_is_killed_is_followed_by_another() {
    let content = bytes(16 << 20);
    let (origin, mut node) = (Buckets::new(&[("bucket/f", &content)]), Node::new());
    let wanted = direct(Wanted::of("s3://bucket", &origin.url()));
    let target = node.published(&wanted);
    let reader = Reader::start(target.join("f"), content);
    let writer = Writer::start(&target);
    let mut pauses = Vec::new();
    for round in 0..kills() {
        let before = node.serving_pid();
        breathe();
        reader.longest();
        signal("KILL", before);
        wait_until("another engine goes on", || node.log().matches("goes on with it").count() > round);
        fs::write(target.join(format!("after-{round}")), b"x").unwrap();
        thread::sleep(Duration::from_millis(100));
        pauses.push(reader.longest());
    }
    let pause = median(pauses);
    eprintln!("the median of the pauses: {pause:?}");
    assert!(pause < Duration::from_secs(5), "{pause:?}");
    assert!(reader.end().unwrap() > 0);
    writer.end(&origin.root().join("bucket"));
    for round in 0..kills() {
        assert!(origin.root().join(format!("bucket/after-{round}")).exists());
    }
    node.unpublished(&wanted);
    node.is_clear();
    // Also where both its processes are gone, as with a pod that is evicted.
    let target = node.published(&wanted);
    node.kill_engine();
    let reads = thread::spawn(move || fs::read(target.join("after-0")));
    thread::sleep(Duration::from_millis(300));
    assert!(!reads.is_finished(), "it waits for an engine");
    assert_eq!(
        node.health("pv-1").unwrap(),
        ["NotServed: no engine serves it now: its readers wait for one"]
    );
    node.start_engine();
    assert_eq!(reads.join().unwrap().unwrap(), b"x");
    node.unpublished(&wanted);
    node.is_clear();
}

#[test]
fn a_plugin_that_is_killed_gets_its_mounts_back() {
    let content = bytes(8 << 20);
    let (origin, mut node) = (Buckets::new(&[("bucket/f", &content)]), Node::new());
    let wanted = direct(Wanted::of("s3://bucket", &origin.url()));
    let target = node.published(&wanted);
    let reader = Reader::start(target.join("f"), content.clone());
    let writer = Writer::start(&target);
    for round in 0..kills() {
        breathe();
        node.kill_plugin();
        fs::write(target.join("while-away"), b"x").unwrap();
        node.start_plugin();
        node.published(&wanted);
        // An engine that dies after it is followed as before.
        let before = node.serving_pid();
        let followed = node.log().matches("goes on with it").count();
        signal("KILL", before);
        wait_until("another engine goes on", || node.log().matches("goes on with it").count() > followed);
        let other = wanted.clone().pod(&format!("pod-of-{round}"));
        assert_eq!(fs::read(node.published(&other).join("while-away")).unwrap(), b"x");
        node.unpublished(&other);
    }
    assert!(reader.end().unwrap() > 0);
    writer.end(&origin.root().join("bucket"));
    node.kill_plugin();
    node.start_plugin();
    node.unpublished(&wanted);
    node.is_clear();
}

#[test]
fn where_both_are_killed_the_volume_is_mounted_anew() {
    let content = bytes(1 << 20);
    let (origin, mut node) = (Buckets::new(&[("bucket/f", &content)]), Node::new());
    let wanted = Wanted::of("s3://bucket", &origin.url());
    let target = node.published(&wanted);
    let open = File::open(target.join("f")).unwrap();
    let writer = Writer::start(&target);
    for round in 0..kills() {
        breathe();
        node.kill_engine();
        node.kill_plugin();
        let dead = fs::read_dir(&target).map(drop).unwrap_err();
        assert!([libc::ENOTCONN, libc::ECONNABORTED].contains(&dead.raw_os_error().unwrap()), "{dead:?}");
        node.start_plugin();
        node.start_engine();
        match round % 2 {
            // Its keys are on disk: nobody's.
            0 => wait_until("it is mounted anew", || {
                fs::read(target.join("f")).is_ok_and(|read| read == content)
            }),
            _ => drop(node.published(&wanted)),
        }
        assert_eq!(fs::read(target.join("f")).unwrap(), content);
    }
    writer.end(&origin.root().join("bucket"));
    // A file that was open is lost, and says so.
    assert!(open.read_at(&mut [0], 0).is_err());
    node.unpublished(&wanted);
    node.is_clear();
}

/// Dead mounts stay below the new ones, and what is mounted above one of them must be seen there alone.
#[test]
fn rights_of_pods_and_their_ends_are_their_own_after_both_were_killed() {
    let (origin, mut node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let writer = Wanted::of("s3://bucket", &origin.url());
    let reader = Wanted { read_only: true, ..writer.clone().pod("pod-2") };
    let other = writer.clone().pod("pod-3");
    let targets = [&writer, &reader, &other].map(|wanted| node.published(wanted));
    node.kill_engine();
    node.kill_plugin();
    node.start_plugin();
    node.start_engine();
    for target in &targets {
        wait_until("it is mounted anew", || fs::read(target.join("f")).is_ok_and(|read| read == b"content"));
    }
    let refused = fs::write(targets[1].join("g"), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    fs::write(targets[0].join("g"), b"x").unwrap();
    fs::write(targets[2].join("h"), b"x").unwrap();
    node.unpublished(&writer);
    for target in &targets[1..] {
        assert_eq!(fs::read(target.join("f")).unwrap(), b"content");
    }
    node.unpublished(&reader);
    assert_eq!(fs::read(targets[2].join("f")).unwrap(), b"content");
    node.unpublished(&other);
    node.is_clear();
}

#[test]
fn a_volume_with_keys_is_mounted_anew_by_kubelets_next_call() {
    use crate::objects::{ACCESS_KEY, SECRET_KEY};
    let (origin, mut node) = (Buckets::locked(&[("bucket/f", b"content")]), Node::new());
    let wanted = Wanted::of("s3://bucket", &origin.url());
    let wanted = wanted.secret("key_id", ACCESS_KEY).secret("access_key", SECRET_KEY);
    let target = node.published(&wanted);
    node.kill_engine();
    node.kill_plugin();
    node.start_plugin();
    node.start_engine();
    thread::sleep(Duration::from_millis(500));
    assert!(fs::read(target.join("f")).is_err());
    let health = node.health("pv-1").unwrap();
    assert!(health[0].starts_with("NotServed: its mount has died"), "{health:?}");
    node.published(&wanted);
    assert_eq!(fs::read(target.join("f")).unwrap(), b"content");
    assert!(!node.log().contains(SECRET_KEY));
    node.unpublished(&wanted);
    node.is_clear();
}

/// The node has lost its mounts, and kubelet publishes again at the same place.
#[test]
fn after_a_reboot_volumes_are_published_again() {
    let (origin, mut node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let wanted = Wanted::of("s3://bucket", &origin.url());
    let gone = wanted.clone().pod("pod-that-is-gone");
    let target = node.published(&wanted);
    node.published(&gone);
    node.kill_engine();
    node.kill_plugin();
    super::end_all(&node.path("shared/pods"));
    super::end_all(&node.path("shared/driver"));
    node.start_plugin();
    node.start_engine();
    assert!(node.log().contains("pv-1: nothing is mounted any more"), "{}", node.log());
    assert_eq!(node.published(&wanted), target);
    assert_eq!(fs::read(target.join("f")).unwrap(), b"content");
    node.unpublished(&gone);
    node.unpublished(&wanted);
    node.is_clear();
}

#[test]
fn an_upgrade_of_the_engine_loses_nothing() {
    let content = bytes(16 << 20);
    let (origin, mut node) = (Buckets::new(&[("bucket/f", &content)]), Node::new());
    let wanted = direct(Wanted::of("s3://bucket", &origin.url()));
    let target = node.published(&wanted);
    for _ in 0..kills() {
        let reader = Reader::start(target.join("f"), content.clone());
        let mut file = File::create(target.join("log")).unwrap();
        file.write_all(&content[..1 << 20]).unwrap();
        let next = node.engine_process();
        let engines = node.log().matches("is connected, and serves 0").count();
        wait_until("the next one is there", || {
            node.log().matches("is connected, and serves 0").count() > engines.min(1) || engines > 1
        });
        // As kubelet ends the pod of the old version.
        signal("TERM", node.engine_pid());
        thread::sleep(Duration::from_millis(300));
        // It waits for the file that is being written.
        file.write_all(&content[1 << 20..2 << 20]).unwrap();
        drop(file);
        let mut old = node.engine.replace(next).unwrap();
        assert!(old.wait().unwrap().success(), "{}", node.log());
        wait_until("the next one serves", || fs::read(target.join("log")).is_ok());
        assert!(fs::read(target.join("log")).unwrap() == content[..2 << 20]);
        assert!(reader.end().unwrap() > 0);
    }
    assert!(fs::read(origin.root().join("bucket/log")).unwrap() == content[..2 << 20]);
    node.unpublished(&wanted);
    node.is_clear();
}

#[test]
fn a_container_sees_a_volume_that_is_mounted_anew() {
    let (origin, mut node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let wanted = Wanted::of("s3://bucket", &origin.url());
    let target = node.published(&wanted);
    // mountPropagation: HostToContainer
    let mut container = Command::new("unshare");
    container.args(["--mount", "--propagation", "slave", "sh", "-c"]);
    let line = format!(
        "while ! test -e {0}/end; do cat {1}/f > {0}/seen.new 2>/dev/null && mv {0}/seen.new {0}/seen; sleep 0.05; done",
        text(node.folder.path()),
        text(&target)
    );
    let mut container = container.arg(line).spawn().unwrap();
    let sees = || {
        let _ = fs::remove_file(node.path("seen"));
        wait_until("the container sees it", || {
            let mut read = String::new();
            let file = File::open(node.path("seen"));
            file.is_ok_and(|mut file| file.read_to_string(&mut read).is_ok()) && read == "content"
        });
    };
    sees();
    fs::write(node.path("dies"), "").unwrap();
    node.kill_engine();
    node.kill_plugin();
    node.start_plugin();
    node.start_engine();
    node.published(&wanted);
    let _ = fs::remove_file(node.path("seen"));
    wait_until("the container sees it again", || {
        fs::read(node.path("seen")).is_ok_and(|read| read == b"content")
    });
    fs::write(node.path("end"), "").unwrap();
    container.wait().unwrap();
    node.unpublished(&wanted);
    node.is_clear();
}

#[test]
fn a_plugin_that_comes_back_waits_for_the_engine_that_serves() {
    let content = bytes(8 << 20);
    let (origin, mut node) = (Buckets::new(&[("bucket/f", &content)]), Node::new());
    let wanted = direct(Wanted::of("s3://bucket", &origin.url()));
    let target = node.published(&wanted);
    let reader = Reader::start(target.join("f"), content.clone());
    // As in an upgrade: another engine stands beside it, and is quicker to come back.
    let mut other = node.engine_process();
    wait_until("the other one is there", || node.log().matches("is connected, and serves").count() == 2);
    let serves = node.serving_pid();
    for _ in 0..2 {
        node.kill_plugin();
        signal("STOP", serves);
        let resumes = thread::spawn(move || {
            thread::sleep(Duration::from_secs(4));
            signal("CONT", serves);
        });
        // It waits for three seconds, and answers then.
        node.start_plugin();
        resumes.join().unwrap();
        node.published(&wanted);
        assert_eq!(node.serving_pid(), serves, "it was not ended\n{}", node.log());
        wait_until("it is back", || node.health("pv-1").is_ok_and(|health| health.is_empty()));
    }
    assert!(reader.end().unwrap() > 0, "it was never told anything wrong");
    let second = super::serving_below(other.id());
    other.kill().unwrap();
    other.wait().unwrap();
    if let Some(second) = second {
        let _ = Command::new("kill").args(["-KILL", &second.to_string()]).status();
    }
    node.unpublished(&wanted);
    node.is_clear();
}

#[test]
fn where_both_are_replaced_at_once_nothing_is_lost() {
    let content = bytes(8 << 20);
    let (origin, mut node) = (Buckets::new(&[("bucket/f", &content)]), Node::new());
    let wanted = direct(Wanted::of("s3://bucket", &origin.url()));
    let target = node.published(&wanted);
    for plugin_first in [true, false] {
        let reader = Reader::start(target.join("f"), content.clone());
        if plugin_first {
            // The engine holds the mounts, and does not leave before somebody else does.
            node.kill_plugin();
            signal("TERM", node.engine_pid());
            thread::sleep(Duration::from_millis(500));
            node.start_plugin();
            assert!(node.engine.take().unwrap().wait().unwrap().success(), "{}", node.log());
            node.start_engine();
        } else {
            // The plugin holds the mounts, and waits for the next engine.
            node.kill_engine();
            signal("TERM", node.plugin.as_ref().unwrap().id());
            thread::sleep(Duration::from_millis(500));
            node.start_engine();
            let mut plugin = node.plugin.take().unwrap();
            assert!(plugin.wait().unwrap().success(), "{}", node.log());
            node.start_plugin();
        }
        thread::sleep(Duration::from_millis(300));
        assert!(reader.end().unwrap() > 0, "{}", node.log());
        node.published(&wanted);
    }
    node.unpublished(&wanted);
    node.is_clear();
}

#[test]
fn no_descriptor_is_left_behind() {
    let (origin, node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let plugin = node.plugin.as_ref().unwrap().id();
    let mut seen = Vec::new();
    for round in 0..6 {
        for pod in ["one", "two"] {
            let wanted = Wanted::of("s3://bucket", &origin.url()).pod(pod);
            assert_eq!(fs::read(node.published(&wanted).join("f")).unwrap(), b"content");
            node.published(&wanted);
        }
        for pod in ["one", "two"] {
            node.unpublished(&Wanted::of("s3://bucket", &origin.url()).pod(pod));
        }
        thread::sleep(Duration::from_millis(300));
        if round > 0 {
            seen.push((descriptors(plugin), descriptors(node.serving_pid())));
        }
    }
    let [first, .., last] = seen[..] else { panic!("{seen:?}") };
    // A connection of the last call may stand yet.
    assert!(last.0 <= first.0 + 1 && last.1 <= first.1 + 1, "{seen:?}");
    node.is_clear();
}
