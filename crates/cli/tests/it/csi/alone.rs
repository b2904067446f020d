//! Volumes with an engine of their own, in a pod that the plugin asks Kubernetes for.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use serde_json::json;
use tonic::Code;

use super::kubernetes::{Kubernetes, PodRunner};
use super::{Node, Wanted, text};
use crate::objects::{Buckets, bytes};
use crate::program::{signal, wait_until};

/// A node whose plugin may make pods.
fn node(options: &[&str]) -> (Kubernetes, Node) {
    let mut node = Node::stopped();
    let cluster = Kubernetes::new(text(&node.path("shared/driver/engine")));
    node.environment = cluster.environment();
    let options = [&["--engine-pods", "engines", "--service-account", cluster.account()], options].concat();
    node.plugin_options = options.iter().map(|&option| option.to_owned()).collect();
    node.start_plugin();
    node.start_engine();
    (cluster, node)
}

#[test]
fn a_volume_alone_has_a_pod_of_its_own_which_may_die_and_be_deleted() {
    let content = bytes(1 << 20);
    let origin = Buckets::new(&[("bucket/f", &content), ("other/g", b"other")]);
    // The node's memory is not what it takes.
    let (cluster, mut node) = node(&["--memory", "256MiB"]);
    let runner = PodRunner::start(&node, &cluster);
    let shared = Wanted { volume_id: "shared".into(), ..Wanted::of("s3://other", &origin.url()) };
    let shared_target = node.published(&shared);
    let wanted = Wanted::of("s3://bucket", &origin.url()).with("isolation", "pod").with("memory", "1GiB");
    let wanted = wanted.with("direct-bytes", "1");
    let target = node.published(&wanted);
    assert_eq!(fs::read(target.join("f")).unwrap(), content);
    let pods = cluster.pods();
    let (path, pod) = &pods[0];
    assert_eq!((pods.len(), &pod["spec"]["nodeName"]), (1, &json!("worker-1")), "{pod}");
    let key = pod["metadata"]["labels"]["csi.flatout.dev/volume"].as_str().unwrap().to_owned();
    let memory = ((1_u64 << 30) + (256 << 20)).to_string();
    assert_eq!(pod["spec"]["containers"][0]["resources"]["limits"]["memory"], memory);
    // The node's engine is none of its business, nor is it that engine's.
    node.kill_engine();
    assert_eq!(fs::read(target.join("f")).unwrap(), content);
    node.start_engine();
    assert_eq!(fs::read(shared_target.join("g")).unwrap(), b"other");
    // Its container dies, and kubelet starts it again.
    let open = File::open(target.join("f")).unwrap();
    let pid = runner.running.lock().unwrap()[&key];
    let mut block = [0; 4096];
    for victim in [super::serving_below(pid).unwrap(), pid] {
        signal("KILL", victim);
        open.read_exact_at(&mut block, 8192).unwrap();
        assert_eq!(block, content[8192..8192 + 4096]);
    }
    // Its pod is deleted, as by an eviction: there is another.
    cluster.delete(path);
    wait_until("another pod goes on", || cluster.pods().len() == 1);
    open.read_exact_at(&mut block, 4096).unwrap();
    assert_eq!(block, content[4096..8192]);
    drop(open);
    // A plugin that dies knows it again.
    node.kill_plugin();
    node.start_plugin();
    node.published(&wanted);
    assert_eq!(fs::read(target.join("f")).unwrap(), content);
    // Of another generation of the DaemonSet: its engine dies, and another pod follows.
    let before = cluster.pods().remove(0);
    let of_engines = "/apis/apps/v1/namespaces/storage/daemonsets/engines";
    let mut daemon_set = cluster.get(of_engines);
    daemon_set["metadata"]["generation"] = json!(2);
    cluster.put(of_engines, daemon_set);
    let mut ended = before.1.clone();
    ended["status"] = json!({"phase": "Running"});
    cluster.put(&before.0, ended);
    wait_until("another pod goes on", || {
        cluster
            .pods()
            .first()
            .is_some_and(|(_, pod)| pod["metadata"]["annotations"] != before.1["metadata"]["annotations"])
    });
    assert_eq!(fs::read(target.join("f")).unwrap(), content);
    node.unpublished(&wanted);
    // Published again at once, it has another engine, and not the one that goes.
    let target = node.published(&wanted);
    wait_until("the one before goes", || cluster.pods().len() == 1);
    assert_eq!(fs::read(target.join("f")).unwrap(), content);
    node.unpublished(&wanted);
    wait_until("its pod goes", || cluster.pods().is_empty());
    assert!(!node.path("shared/driver/alone").join(&key).exists());
    node.unpublished(&shared);
    node.is_clear();
}

#[test]
fn a_pod_that_cannot_run_is_said_and_goes_with_its_volume() {
    let origin = Buckets::new(&[("bucket/f", b"content")]);
    let (cluster, mut node) = node(&[]);
    let wanted = Wanted::of("s3://bucket", &origin.url()).with("isolation", "pod");
    let call = std::thread::scope(|scope| {
        let call = scope.spawn(|| node.publish(&wanted));
        wait_until("there is a pod", || !cluster.pods().is_empty());
        let (path, mut pod) = cluster.pods().remove(0);
        let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        pod["status"] = json!({"phase": "Pending", "containerStatuses": [{ "state": waiting }]});
        cluster.put(&path, pod);
        call.join().unwrap()
    });
    let refused = call.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("ImagePullBackOff (no such image)"), "{refused:?}");
    // The pod is there for kubelet's next call, and goes with the volume.
    assert_eq!(cluster.pods().len(), 1);
    node.unpublished(&wanted);
    wait_until("its pod goes", || cluster.pods().is_empty());
    node.is_clear();
    // One that a plugin left behind when it was killed.
    node.kill_plugin();
    let left = json!({
        "metadata": {"name": "engines-0123", "labels": {"csi.flatout.dev/volume": "0123"}},
        "status": {"phase": "Running"},
    });
    cluster.put("/api/v1/namespaces/storage/pods/engines-0123", left);
    node.start_plugin();
    wait_until("what was left is deleted", || cluster.pods().is_empty());
}

#[test]
fn without_the_right_to_make_pods_a_volume_alone_is_refused() {
    let (origin, node) = (Buckets::new(&[("bucket/f", b"content")]), Node::new());
    let wanted = Wanted::of("s3://bucket", &origin.url()).with("isolation", "pod");
    let refused = node.publish(&wanted).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("install it with isolation.enabled=true"), "{refused:?}");
    node.is_clear();
}

#[test]
fn an_index_of_a_volume_alone_goes_with_its_engine() {
    let origin = Buckets::new(&[("bucket/f", b"content"), ("bucket/a/g", b"more")]);
    let (cluster, node) = node(&[]);
    let runner = PodRunner::start(&node, &cluster);
    let wanted = Wanted::of("s3://bucket", &origin.url()).with("isolation", "pod").with("kind", "index");
    let wanted = Wanted { read_only: true, ..wanted };
    let target = node.published(&wanted);
    assert_eq!(fs::read(target.join("f")).unwrap(), b"content");
    let pid = *runner.running.lock().unwrap().values().next().unwrap();
    signal("KILL", super::serving_below(pid).unwrap());
    assert_eq!(fs::read(target.join("a/g")).unwrap(), b"more");
    node.unpublished(&wanted);
    wait_until("its pod goes", || cluster.pods().is_empty());
    node.is_clear();
    let left: Vec<_> = fs::read_dir(node.path("shared/driver/alone")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}
