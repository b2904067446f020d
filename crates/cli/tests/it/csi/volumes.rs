//! Volumes that are published, used and unpublished.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::time::{Duration, Instant};

use flatout_csi::proto::NodeGetInfoRequest;
use flatout_csi::proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::{Node, Wanted};
use crate::folder::names;
use crate::mountinfo::is_mounted;
use crate::objects::{Buckets, bytes};

#[test]
fn a_pod_reads_and_writes_a_bucket() {
    let content = bytes(3 << 20);
    let (origin, node) = (Buckets::new(&[("bucket/a/f", &content)]), Node::new());
    let wanted = Wanted::of("s3://bucket/a", &origin.url());
    let began = Instant::now();
    let target = node.published(&wanted);
    let mut first = [0];
    File::open(target.join("f")).unwrap().read_exact(&mut first).unwrap();
    eprintln!("first byte after {:?}", began.elapsed());
    assert_eq!(fs::read(target.join("f")).unwrap(), content);
    fs::write(target.join("g"), b"written").unwrap();
    assert_eq!(fs::read(origin.root().join("bucket/a/g")).unwrap(), b"written");
    assert_eq!(node.stats(&wanted).unwrap(), 1 << 62);
    assert_eq!(node.health("pv-1").unwrap(), Vec::<String>::new());
    // As kubelet does every minute.
    node.published(&wanted);
    node.unpublished(&wanted);
    node.unpublished(&wanted);
    assert_eq!(node.stats(&wanted).unwrap_err().code(), Code::NotFound);
    assert_eq!(node.health("pv-1").unwrap_err().code(), Code::NotFound);
    node.is_clear();
}

#[test]
fn pods_share_a_mount_and_have_rights_of_their_own() {
    let (origin, node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let one = Wanted::of("s3://bucket", &origin.url());
    let two = Wanted { read_only: true, ..one.clone().pod("pod-2") };
    let (first, second) = (node.published(&one), node.published(&two));
    let device = |path: &std::path::Path| fs::metadata(path).unwrap().dev();
    assert_eq!(device(&first), device(&second));
    fs::write(first.join("g"), b"x").unwrap();
    assert_eq!(names(&second), ["f", "g"]);
    let refused = fs::write(second.join("h"), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    // What is not asked for again as it was is another volume at the same place.
    let other = Wanted { read_only: true, ..one.clone() };
    assert_eq!(node.publish(&other).unwrap_err().code(), Code::AlreadyExists);
    assert_eq!(fs::read(first.join("f")).unwrap(), b"content");
    node.unpublished(&one);
    assert_eq!(fs::read(second.join("f")).unwrap(), b"content");
    node.unpublished(&two);
    node.is_clear();
}

#[test]
fn a_volume_of_readers_has_no_writer() {
    let (origin, node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let wanted = Wanted { mode: Mode::MultiNodeReaderOnly, ..Wanted::of("s3://bucket", &origin.url()) };
    let target = node.published(&wanted);
    assert_eq!(fs::write(target.join("g"), b"x").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read(target.join("f")).unwrap(), b"content");
    node.unpublished(&wanted);
    node.is_clear();
}

#[test]
fn a_volume_for_one_pod_has_one_pod() {
    let (origin, node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let one = Wanted { mode: Mode::SingleNodeSingleWriter, ..Wanted::of("s3://bucket", &origin.url()) };
    let two = one.clone().pod("pod-2");
    node.published(&one);
    assert_eq!(node.publish(&two).unwrap_err().code(), Code::FailedPrecondition);
    node.published(&one);
    node.unpublished(&one);
    node.published(&two);
    node.unpublished(&two);
    node.is_clear();
}

#[test]
fn a_group_of_the_pod_may_write() {
    let (origin, node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let wanted = Wanted { group: "4711".to_owned(), ..Wanted::of("s3://bucket", &origin.url()) };
    let target = node.published(&wanted);
    let about = fs::metadata(target.join("f")).unwrap();
    assert_eq!((about.uid(), about.gid(), about.mode() & 0o777), (0, 4711, 0o660));
    // A process of the group, with a user that owns nothing, in a namespace of its own: a container.
    let in_pod = |group: &str, line: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "slave", "setpriv", "--reuid=1234"]);
        command.arg(format!("--regid={group}")).args(["--clear-groups", "sh", "-c", line]);
        command.current_dir("/").status().unwrap().success()
    };
    // Temporary folders above it are closed to other users.
    let line = format!("cd {} && echo written > g && cat f", target.display());
    assert!(in_pod("4711", &line), "{}", node.log());
    assert!(!in_pod("4712", &line));
    node.unpublished(&wanted);
    node.is_clear();
}

#[test]
fn calls_at_once_are_all_done() {
    let (origin, node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let wanted: Vec<Wanted> =
        (0..8).map(|pod| Wanted::of("s3://bucket", &origin.url()).pod(&format!("pod-{pod}"))).collect();
    let client = node.client();
    let answers = node.block_on(async {
        let mut calls = tokio::task::JoinSet::new();
        for wanted in wanted.iter().chain(&wanted) {
            let (mut client, request) = (client.clone(), node.request(wanted));
            fs::create_dir_all(node.target(wanted).parent().unwrap()).unwrap();
            calls.spawn(async move { client.node_publish_volume(request).await });
        }
        calls.join_all().await
    });
    for answer in answers {
        answer.unwrap_or_else(|status| panic!("{status:?}"));
    }
    for wanted in &wanted {
        let target = node.published(wanted);
        assert_eq!(fs::read(target.join("f")).unwrap(), b"content");
    }
    wanted.iter().for_each(|wanted| node.unpublished(wanted));
    node.is_clear();
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let (origin, node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let base = || Wanted::of("s3://bucket", &origin.url());
    let check = |wanted: Wanted, code: Code, says: &str| {
        let status = node.publish(&wanted).unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(says), "{says}: {status:?}");
        assert!(!is_mounted(&node.target(&wanted)) && !node.target(&wanted).exists());
    };
    check(base().with("surce", "x"), Code::InvalidArgument, "did you mean source?");
    check(base().with("cache", "emptyDir"), Code::InvalidArgument, "cache: there is no cache on disk yet");
    check(base().with("otherOpts", "ro"), Code::InvalidArgument, "otherOpts: 'ro' is no option");
    check(base().with("memory", "much"), Code::InvalidArgument, "memory");
    check(base().with("bucket", "bucket"), Code::InvalidArgument, "write one of source");
    check(Wanted::of("s3://absent", &origin.url()), Code::NotFound, "absent");
    check(Wanted::of("http://host/x", &origin.url()), Code::InvalidArgument, "source");
    check(Wanted { mount_options: vec!["prefix a/".to_owned()], ..base() }, Code::InvalidArgument, "prefix");
    check(base().with("memory", "64GiB"), Code::ResourceExhausted, "4096 MiB of this node 0 are taken");
    check(
        Wanted::of("s3://bucket", "http://127.0.0.1:1").with("outage-timeout", "1s"),
        Code::Unavailable,
        "127.0.0.1:1",
    );
    node.is_clear();
}

#[test]
fn a_node_is_full_when_its_memory_is_taken() {
    let (origin, node) = (
        Buckets::new(&[("bucket/f", b"content")]),
        Node::with(&["--memory", "512MiB", "--volume-memory", "256MiB"]),
    );
    let mut client = node.client();
    let info = node.block_on(client.node_get_info(NodeGetInfoRequest {})).unwrap().into_inner();
    assert_eq!((info.node_id.as_str(), info.max_volumes_per_node), ("worker-1", 2));
    let volume = |id: &str| Wanted { volume_id: id.to_owned(), ..Wanted::of("s3://bucket", &origin.url()) };
    node.published(&volume("one"));
    node.published(&volume("two").with("memory", "128MiB"));
    let full = node.publish(&volume("three")).unwrap_err();
    assert_eq!(full.code(), Code::ResourceExhausted);
    assert!(full.message().contains("of 512 MiB of this node 384 are taken"), "{full:?}");
    node.published(&volume("three").with("memory", "128MiB"));
    for id in ["one", "two", "three"] {
        node.unpublished(&volume(id));
    }
    node.is_clear();
}

/// A user of the first one keeps it, while the volume is published again under the same name.
#[test]
fn a_mount_that_ends_late_takes_no_other_with_it() {
    let (origin, mut node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let wanted = Wanted::of("s3://bucket", &origin.url()).with("direct-bytes", "1");
    let held = File::open(node.published(&wanted).join("f")).unwrap();
    node.unpublished(&wanted);
    let target = node.published(&wanted);
    let open = File::open(target.join("f")).unwrap();
    let mut read = [0; 7];
    held.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"content");
    // The first one ends with its last user.
    let ends = node.log().matches("unmounted by somebody else").count();
    drop(held);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(node.log().matches("unmounted by somebody else").count(), ends, "{}", node.log());
    assert_eq!(node.health("pv-1").unwrap(), Vec::<String>::new());
    // Whoever follows the engine knows the second one.
    node.kill_engine();
    node.start_engine();
    open.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"content");
    drop(open);
    node.unpublished(&wanted);
    node.is_clear();
}

#[test]
fn a_folder_of_a_volume_is_bound_for_a_container() {
    let (origin, mut node) = (Buckets::new(&[("bucket/a/b/f", b"content")]), Node::new());
    let wanted = Wanted::of("s3://bucket", &origin.url()).with("direct-bytes", "1");
    let target = node.published(&wanted);
    // As kubelet does: it opens the folder, and binds what it has open.
    let bound = node.path("shared/pods/pod-1/volume-subpaths/pv-1/main/0");
    fs::create_dir_all(&bound).unwrap();
    let folder = File::open(target.join("a/b")).unwrap();
    let source = format!("/proc/{}/fd/{}", std::process::id(), folder.as_raw_fd());
    super::mount(&["--no-canonicalize", "--bind", &source, bound.to_str().unwrap()]);
    drop(folder);
    assert_eq!(fs::read(bound.join("f")).unwrap(), b"content");
    fs::write(bound.join("g"), b"written").unwrap();
    assert_eq!(fs::read(origin.root().join("bucket/a/b/g")).unwrap(), b"written");
    // It lives on with the volume, and it may be unmounted after it.
    node.kill_engine();
    node.start_engine();
    assert_eq!(fs::read(bound.join("f")).unwrap(), b"content");
    node.unpublished(&wanted);
    assert_eq!(fs::read(bound.join("g")).unwrap(), b"written");
    assert!(Command::new("umount").arg(&bound).status().unwrap().success());
    node.is_clear();
}

#[test]
fn a_volume_in_a_pod_brings_its_own_keys() {
    use crate::objects::{ACCESS_KEY, SECRET_KEY};
    let (origin, node) = (Buckets::locked(&[("bucket/f", b"content")]), Node::new());
    let inline = |wanted: Wanted| Wanted { volume_id: "csi-0123".into(), is_inline: true, ..wanted };
    let mut of_driver = inline(Wanted::of("s3://bucket", &origin.url()));
    of_driver.attributes.remove("no-sign-request");
    let refused = node.publish(&of_driver).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("an inline volume brings keys of its own"), "{refused:?}");
    let wanted = of_driver.secret("AWS_ACCESS_KEY_ID", ACCESS_KEY);
    let wanted = wanted.secret("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    assert_eq!(fs::read(node.published(&wanted).join("f")).unwrap(), b"content");
    node.unpublished(&wanted);
    node.is_clear();
}
