//! Volumes whose names come from an index, as an image of EROFS or by FUSE.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flatout_csi::proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::{Node, Wanted, text};
use crate::folder::names;
use crate::objects::{Buckets, bytes};
use crate::program::{flatout, run, signal, wait_until};

/// Small files, some of them in folders.
fn files() -> BTreeMap<String, Vec<u8>> {
    let name = |at: usize| match at % 3 {
        0 => format!("f-{at:03}"),
        1 => format!("a/f-{at:03}"),
        _ => format!("a/b {}/f-{at:03}", at % 7),
    };
    (0..120).map(|at| (name(at), bytes(at * 131))).collect()
}

fn bucket_of(files: &BTreeMap<String, Vec<u8>>) -> Buckets {
    let named: Vec<(String, &[u8])> =
        files.iter().map(|(name, content)| (format!("bucket/train/{name}"), content.as_slice())).collect();
    Buckets::new(&named.iter().map(|(name, content)| (name.as_str(), *content)).collect::<Vec<_>>())
}

fn of_index(origin: &str) -> Wanted {
    let wanted = Wanted::of("s3://bucket/train", origin).with("kind", "index");
    Wanted { mode: Mode::MultiNodeReaderOnly, ..wanted }
}

/// All files below, by their paths.
fn read_all(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = text(path.strip_prefix(folder).unwrap()).to_owned();
                    found.insert(name, fs::read(path).unwrap());
                }
            }
        }
    }
    found
}

/// The type of what is mounted there.
fn kind(point: &Path) -> String {
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let at = |line: &&str| line.split(' ').nth(4) == Some(text(point));
    let line = table.lines().rfind(at).expect("it is mounted");
    line.split(" - ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
}

impl Node {
    /// The files of indexes that are on the node.
    fn indexes(&self) -> Vec<String> {
        let folder = self.path("shared/driver/engine/state/indexes");
        if folder.exists() { names(&folder) } else { Vec::new() }
    }

    #[track_caller]
    fn has_no_index(&self) {
        self.is_clear();
        wait_until("its index is gone", || self.indexes().iter().all(|name| name.starts_with("object-")));
    }
}

/// What is behind the page cache, also after the engine has died: each file once.
#[track_caller]
fn reads(target: &Path, files: &BTreeMap<String, Vec<u8>>, part: usize) {
    for (name, content) in files.iter().skip(part * 20).take(20) {
        assert_eq!(&fs::read(target.join(name)).unwrap(), content, "{name}");
    }
}

#[test]
fn pods_of_a_node_share_the_files_of_an_index() {
    let files = files();
    let (origin, mut node) = (bucket_of(&files), Node::new());
    let one = of_index(&origin.url());
    let two = one.clone().pod("pod-2");
    let (first, second) = (node.published(&one), node.published(&two));
    assert_eq!((kind(&first).as_str(), kind(&second).as_str()), ("erofs", "erofs"));
    assert_eq!(node.indexes().len(), 1);
    assert_eq!(node.log().matches("is listed").count(), 1, "{}", node.log());
    reads(&first, &files, 0);
    let refused = fs::write(second.join("h"), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    let bytes: usize = files.values().map(Vec::len).sum();
    assert_eq!(node.stats(&one).unwrap(), bytes as i64);
    // What comes later is not seen.
    fs::write(origin.root().join("bucket/train/later"), b"later").unwrap();
    assert!(!second.join("later").exists());
    // Whoever dies, pods read on.
    signal("KILL", node.serving_pid());
    reads(&second, &files, 1);
    node.kill_engine();
    let waits = thread::spawn({
        let (first, files) = (first.clone(), files.clone());
        move || reads(&first, &files, 2)
    });
    thread::sleep(Duration::from_millis(300));
    assert!(!waits.is_finished(), "it waits for an engine");
    node.start_engine();
    waits.join().unwrap();
    node.kill_plugin();
    reads(&first, &files, 3);
    node.start_plugin();
    node.published(&one);
    signal("KILL", node.serving_pid());
    reads(&second, &files, 4);
    assert_eq!(node.health("pv-1").unwrap(), Vec::<String>::new());
    // And an upgrade.
    let mut next = node.engine_process();
    wait_until("the next engine is there", || node.log().matches("is connected").count() >= 6);
    signal("TERM", node.engine_pid());
    node.engine.as_mut().unwrap().wait().unwrap();
    std::mem::swap(node.engine.as_mut().unwrap(), &mut next);
    reads(&second, &files, 5);
    assert_eq!(read_all(&first), files);
    assert_eq!(read_all(&second), files);
    node.unpublished(&one);
    assert_eq!(read_all(&second), files);
    node.unpublished(&two);
    node.has_no_index();
    // A new publish lists again.
    let target = node.published(&one);
    assert_eq!(fs::read(target.join("later")).unwrap(), b"later");
    // Also where nobody serves it any more.
    node.kill_engine();
    node.unpublished(&one);
    node.is_clear();
}

#[test]
fn an_index_is_mounted_anew_where_both_were_killed() {
    let files = files();
    let (origin, mut node) = (bucket_of(&files), Node::new());
    let wanted = of_index(&origin.url());
    let target = node.published(&wanted);
    reads(&target, &files, 0);
    node.kill_engine();
    node.kill_plugin();
    node.start_plugin();
    node.start_engine();
    // What the page cache has is read from a dead image, too.
    wait_until("it is mounted anew", || node.log().contains("pv-1: it is mounted anew"));
    assert_eq!(read_all(&target), files);
    // The same names as before.
    assert_eq!(node.log().matches("is listed").count(), 1, "{}", node.log());
    node.unpublished(&wanted);
    node.has_no_index();
}

#[test]
fn without_images_an_index_is_shown_by_fuse() {
    let files = files();
    let (origin, mut node) = (bucket_of(&files), Node::with(&["--no-images"]));
    let wanted = of_index(&origin.url());
    let target = node.published(&wanted);
    assert_eq!(kind(&target), "fuse.flatout");
    assert!(node.log().contains("pv-1: its files are shown by FUSE"), "{}", node.log());
    reads(&target, &files, 0);
    signal("KILL", node.serving_pid());
    reads(&target, &files, 1);
    node.kill_plugin();
    node.start_plugin();
    node.kill_engine();
    node.start_engine();
    assert_eq!(read_all(&target), files);
    let refused = fs::write(target.join("h"), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    node.unpublished(&wanted);
    node.has_no_index();
}

fn build(source: &str, index: &Path, origin: &Buckets) {
    let url = origin.url();
    let arguments = ["volume", "build", source, text(index), "--endpoint-url", &url, "--no-sign-request"];
    run(&mut flatout(&arguments)).clean();
}

#[test]
fn an_index_that_was_made_before_saves_the_listing() {
    let mut files = files();
    let (origin, node) = (bucket_of(&files), Node::new());
    let index = origin.root().join("bucket/indexes/train.flat");
    fs::create_dir(index.parent().unwrap()).unwrap();
    build("s3://bucket/train/", &index, &origin);
    fs::write(origin.root().join("bucket/train/later"), b"later").unwrap();
    let wanted = of_index(&origin.url()).with("index", "indexes/train.flat");
    let fetched = || node.log().matches("is fetched").count();
    let target = node.published(&wanted);
    assert_eq!(kind(&target), "erofs");
    assert_eq!(read_all(&target), files);
    node.unpublished(&wanted);
    node.has_no_index();
    // It is kept for the next one.
    let target = node.published(&wanted.clone().with("index", "s3://bucket/indexes/train.flat"));
    assert_eq!((read_all(&target), fetched()), (files.clone(), 1));
    node.unpublished(&wanted);
    // Another version is another index.
    build("s3://bucket/train/", &index, &origin);
    files.insert("later".to_owned(), b"later".to_vec());
    let target = node.published(&wanted);
    assert_eq!((read_all(&target), fetched()), (files, 2));
    node.unpublished(&wanted);
    assert!(!node.log().contains("is listed"), "{}", node.log());
    node.has_no_index();
}

#[test]
fn an_index_that_cannot_be_is_refused_by_name() {
    let (origin, node) = (bucket_of(&files()), Node::new());
    fs::create_dir(origin.root().join("bucket/other")).unwrap();
    fs::write(origin.root().join("bucket/other/f"), b"x").unwrap();
    build("s3://bucket/other/", &origin.root().join("bucket/other.flat"), &origin);
    let base = || of_index(&origin.url());
    let check = |wanted: Wanted, code: Code, says: &str| {
        let status = node.publish(&wanted).unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(says), "{says}: {status:?}");
    };
    let writer = Wanted { mode: Mode::MultiNodeMultiWriter, ..base() };
    check(writer.clone(), Code::InvalidArgument, "kind: an index is read only");
    check(base().with("index", "train/f-000"), Code::InvalidArgument, "index: s3://bucket/train/f-000: ");
    check(base().with("index", "other.flat"), Code::InvalidArgument, "an index of s3://bucket/other/");
    check(base().with("index", "absent.flat"), Code::NotFound, "absent.flat");
    let absent = Wanted::of("s3://absent", &origin.url()).with("kind", "index");
    check(Wanted { read_only: true, ..absent }, Code::NotFound, "absent");
    node.has_no_index();
    // A claim that is read only is enough.
    let target = node.published(&Wanted { read_only: true, ..writer.clone() });
    assert_eq!(kind(&target), "erofs");
    node.unpublished(&writer);
    node.has_no_index();
}

/// A way to an origin, on which nothing moves for a while.
struct Held {
    url: String,
    is_held: Arc<AtomicBool>,
}

impl Held {
    fn before(origin: &str) -> Held {
        let origin = origin.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let is_held = Arc::new(AtomicBool::new(true));
        let held = is_held.clone();
        thread::spawn(move || {
            for inner in listener.incoming().flatten() {
                let outer = TcpStream::connect(&origin).unwrap();
                let ways = [(inner.try_clone(), outer.try_clone()), (Ok(outer), Ok(inner))];
                for (from, to) in ways {
                    let (mut from, mut to, held) = (from.unwrap(), to.unwrap(), held.clone());
                    thread::spawn(move || {
                        let mut bytes = [0; 65536];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            while held.load(Ordering::SeqCst) {
                                thread::sleep(Duration::from_millis(20));
                            }
                            if to.write_all(&bytes[..count]).is_err() {
                                return;
                            }
                        }
                        let _ = to.shutdown(std::net::Shutdown::Write);
                    });
                }
            }
        });
        Held { url, is_held }
    }
}

#[test]
fn while_an_index_is_made_kubelet_calls_again() {
    let files = files();
    let (origin, node) = (bucket_of(&files), Node::new());
    let held = Held::before(&origin.url());
    let wanted = of_index(&held.url);
    let two = wanted.clone().pod("pod-2");
    // At once, because each call takes as long as one may.
    thread::scope(|scope| {
        for wanted in [&wanted, &two] {
            scope.spawn(|| {
                let status = node.publish(wanted).unwrap_err();
                assert_eq!(status.code(), Code::Unavailable, "{status:?}");
                let says = "its index is being made: 0 keys of s3://bucket/train/ were listed so far";
                assert!(status.message().contains(says), "{status:?}");
            });
        }
    });
    // A pod that goes leaves it to the others.
    node.unpublished(&wanted);
    held.is_held.store(false, Ordering::SeqCst);
    let target: PathBuf = node.published(&two);
    assert_eq!(read_all(&target), files);
    assert_eq!(node.log().matches("is listed").count(), 1, "{}", node.log());
    node.unpublished(&two);
    node.has_no_index();
    // Where the last one goes, nothing comes of it.
    held.is_held.store(true, Ordering::SeqCst);
    assert_eq!(node.publish(&wanted).unwrap_err().code(), Code::Unavailable);
    node.unpublished(&wanted);
    held.is_held.store(false, Ordering::SeqCst);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(node.indexes(), Vec::<String>::new());
    node.has_no_index();
}

/// Kubelet asks for no unpublish after such an error.
#[test]
fn where_an_index_cannot_be_made_after_all_nothing_is_left() {
    let (origin, node) = (bucket_of(&files()), Node::new());
    let held = Held::before(&origin.url());
    let wanted = of_index(&held.url);
    assert_eq!(node.publish(&wanted).unwrap_err().code(), Code::Unavailable);
    fs::remove_dir_all(origin.root().join("bucket")).unwrap();
    held.is_held.store(false, Ordering::SeqCst);
    wait_until("the listing has failed", || node.log().contains("pv-1: its index: list"));
    assert_eq!(node.publish(&wanted).unwrap_err().code(), Code::NotFound, "{}", node.log());
    assert!(!node.target(&wanted).exists());
    node.has_no_index();
}
