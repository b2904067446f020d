//! The Kubernetes driver, as kubelet calls it: the plugin in a mount namespace of its own, an engine of a
//! user without rights in another, and targets that are seen in a third one by propagation, as a node sees
//! them. The third one is the test's: on the machine itself nothing is mounted.

mod alone;
mod controller;
mod deaths;
mod indexes;
mod keys;
mod kubernetes;
mod roles;
// Its other users need more of it.
#[allow(dead_code)]
#[path = "../../../../ambient/src/credentials/tests/service.rs"]
mod service;
mod volumes;

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use flatout_csi::proto::node_client::NodeClient;
use flatout_csi::proto::volume_capability::access_mode::Mode;
use flatout_csi::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use flatout_csi::proto::{
    NodeGetVolumeHealthRequest, NodeGetVolumeStatsRequest, NodePublishVolumeRequest,
    NodeUnpublishVolumeRequest, VolumeCapability,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::mountinfo::{is_mounted, keep_mounts_from_others, mounts_below};
use crate::program::{signal, wait_until};

/// Nobody: the number that images without a shell use.
const ENGINE_USER: u32 = 65532;
/// No wait of a test is longer: what takes so long hangs, and its mounts are ended by force.
const PATIENCE: Duration = Duration::from_secs(150);
/// As kubelet's.
const CALL_WITHIN: Duration = Duration::from_secs(120);

/// A node: its folder, which the plugin, the engine and kubelet share, and the processes of the driver.
pub struct Node {
    folder: tempfile::TempDir,
    plugin: Option<Child>,
    engine: Option<Child>,
    plugin_options: Vec<String>,
    /// Variables of all of them.
    environment: Vec<(String, String)>,
    runtime: tokio::runtime::Runtime,
    _alive: mpsc::Sender<()>,
}

/// What a PV and a pod make kubelet ask for.
#[derive(Clone)]
pub struct Wanted {
    pub volume_id: String,
    pub pod: String,
    pub attributes: HashMap<String, String>,
    pub secrets: HashMap<String, String>,
    pub mount_options: Vec<String>,
    pub group: String,
    pub mode: Mode,
    pub read_only: bool,
    /// It stands in the pod itself.
    pub is_inline: bool,
}

impl Wanted {
    /// A volume of the bucket at that origin, which lets anybody in.
    pub fn of(source: &str, origin: &str) -> Wanted {
        let pairs = [("source", source), ("endpoint-url", origin), ("no-sign-request", "true")];
        Wanted {
            volume_id: "pv-1".to_owned(),
            pod: "pod-1".to_owned(),
            attributes: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            secrets: HashMap::new(),
            mount_options: Vec::new(),
            group: String::new(),
            mode: Mode::MultiNodeMultiWriter,
            read_only: false,
            is_inline: false,
        }
    }

    pub fn pod(mut self, pod: &str) -> Wanted {
        self.pod = pod.to_owned();
        self
    }

    pub fn with(mut self, key: &str, value: &str) -> Wanted {
        self.attributes.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn secret(mut self, key: &str, value: &str) -> Wanted {
        self.attributes.remove("no-sign-request");
        self.secrets.insert(key.to_owned(), value.to_owned());
        self
    }
}

impl Node {
    pub fn new() -> Node {
        Node::with(&[])
    }

    /// The plugin gets these options, too.
    pub fn with(options: &[&str]) -> Node {
        let mut node = Node::stopped();
        node.plugin_options = options.iter().map(|&option| option.to_owned()).collect();
        node.start_plugin();
        node.start_engine();
        node
    }

    /// Without a driver.
    pub fn stopped() -> Node {
        assert!(Path::new("/dev/fuse").exists(), "volumes need /dev/fuse: modprobe fuse");
        keep_mounts_from_others();
        let folder = tempfile::tempdir_in(std::env::temp_dir().canonicalize().unwrap()).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let program = folder.path().join("flatout");
        // Where the engine's user can see it.
        if fs::hard_link(env!("CARGO_BIN_EXE_flatout"), &program).is_err() {
            fs::copy(env!("CARGO_BIN_EXE_flatout"), &program).unwrap();
        }
        fs::create_dir(folder.path().join("shared")).unwrap();
        let shared = folder.path().join("shared");
        mount(&["--bind", text(&shared), text(&shared)]);
        mount(&["--make-shared", text(&shared)]);
        for name in ["driver", "pods"] {
            fs::create_dir(shared.join(name)).unwrap();
        }
        let (alive, end) = mpsc::channel();
        let watched = folder.path().to_owned();
        let patience = PATIENCE + deaths::kills() as u32 * Duration::from_secs(6);
        // Readers in this very process wait for a mount that hangs, until it is gone.
        thread::spawn(move || {
            if end.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("a volume below {} hangs: ended by force", watched.display());
                end_all(&watched);
            }
        });
        Node {
            folder,
            plugin: None,
            engine: None,
            plugin_options: Vec::new(),
            environment: Vec::new(),
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            _alive: alive,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("csi.sock")
    }

    /// In a mount namespace that shares mounts with this one below the node's folder.
    pub fn start_plugin(&mut self) {
        let _ = fs::remove_file(self.socket());
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "unchanged"]).arg(self.path("flatout"));
        command.args(["csi", "node", "--node-name", "worker-1", "--endpoint"]);
        command.arg(format!("unix://{}", self.socket().display()));
        command.arg("--folder").arg(self.path("shared/driver")).args(&self.plugin_options);
        self.plugin = Some(self.start(command, "plugin.log"));
        // A socket is seen before somebody listens.
        wait_until("the plugin answers", || UnixStream::connect(self.socket()).is_ok());
        // The engine's user must reach its own folder.
        fs::set_permissions(self.path("shared/driver"), fs::Permissions::from_mode(0o711)).unwrap();
    }

    /// In a mount namespace that shares nothing, as a user without rights. Returns its number: a second one
    /// may stand beside the first.
    pub fn start_engine(&mut self) -> u32 {
        let child = self.engine_process();
        let pid = child.id();
        self.engine = Some(child);
        pid
    }

    pub fn engine_process(&self) -> Child {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        self.start(engine_of(self.folder.path(), command), "engine.log")
    }

    fn start(&self, command: Command, log: &str) -> Child {
        start_in(self.folder.path(), command, log, &self.environment)
    }

    /// What the driver has said.
    pub fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
        read("plugin.log") + &read("engine.log") + &read("alone.log")
    }

    pub fn engine_pid(&self) -> u32 {
        self.engine.as_ref().unwrap().id()
    }

    /// The process of the engine that serves, which the other one starts.
    pub fn serving_pid(&self) -> u32 {
        serving_below(self.engine_pid()).expect("an engine serves")
    }

    /// kill -9.
    pub fn kill_plugin(&mut self) {
        let mut plugin = self.plugin.take().unwrap();
        signal("KILL", plugin.id());
        plugin.wait().unwrap();
    }

    pub fn kill_engine(&mut self) {
        let mut engine = self.engine.take().unwrap();
        let serves = serving_below(engine.id());
        signal("KILL", engine.id());
        engine.wait().unwrap();
        if let Some(serves) = serves {
            // It may have heard of the other's death already.
            let _ = Command::new("kill").args(["-KILL", &serves.to_string()]).stderr(Stdio::null()).status();
            wait_until("the engine is gone", || !Path::new(&format!("/proc/{serves}")).exists());
        }
    }

    pub fn client(&self) -> NodeClient<Channel> {
        let socket = format!("unix://{}", self.socket().display());
        let endpoint = Endpoint::from_shared(socket).unwrap().timeout(CALL_WITHIN);
        let channel = self.runtime.block_on(endpoint.connect()).expect("the plugin answers");
        NodeClient::new(channel)
    }

    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Where kubelet has a pod see a volume.
    pub fn target(&self, wanted: &Wanted) -> PathBuf {
        let Wanted { pod, volume_id, .. } = wanted;
        self.path("shared/pods").join(pod).join("volumes/kubernetes.io~csi").join(volume_id).join("mount")
    }

    /// What kubelet sends.
    pub fn request(&self, wanted: &Wanted) -> NodePublishVolumeRequest {
        let mut volume_context = wanted.attributes.clone();
        let of_pod = [
            ("csi.storage.k8s.io/pod.name", wanted.pod.as_str()),
            ("csi.storage.k8s.io/pod.namespace", "default"),
            ("csi.storage.k8s.io/pod.uid", &wanted.pod),
            ("csi.storage.k8s.io/serviceAccount.name", "default"),
            ("csi.storage.k8s.io/ephemeral", if wanted.is_inline { "true" } else { "false" }),
        ];
        volume_context.extend(of_pod.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let mount = MountVolume {
            fs_type: String::new(),
            mount_flags: wanted.mount_options.clone(),
            volume_mount_group: wanted.group.clone(),
        };
        NodePublishVolumeRequest {
            volume_id: wanted.volume_id.clone(),
            publish_context: HashMap::new(),
            staging_target_path: String::new(),
            target_path: text(&self.target(wanted)).to_owned(),
            volume_capability: Some(VolumeCapability {
                access_mode: Some(AccessMode { mode: wanted.mode as i32 }),
                access_type: Some(AccessType::Mount(mount)),
            }),
            readonly: wanted.read_only,
            secrets: wanted.secrets.clone(),
            volume_context,
        }
    }

    /// One call, as kubelet makes it: it makes the parent folder before, and after a final error removes the
    /// target.
    pub fn publish(&self, wanted: &Wanted) -> Result<PathBuf, Status> {
        let target = self.target(wanted);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let mut client = self.client();
        let answer = self.block_on(client.node_publish_volume(self.request(wanted)));
        let Err(status) = answer else { return Ok(target) };
        let may_run_on = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Unavailable,
            Code::ResourceExhausted,
            Code::Aborted,
        ];
        if !may_run_on.contains(&status.code()) && !is_mounted(&target) {
            let _ = fs::remove_dir(&target);
        }
        Err(status)
    }

    /// Until it is done: calls that may run on are made again.
    #[track_caller]
    pub fn published(&self, wanted: &Wanted) -> PathBuf {
        let since = Instant::now();
        loop {
            match self.publish(wanted) {
                Ok(target) => {
                    assert!(is_mounted(&target), "{} is not seen here\n{}", target.display(), self.log());
                    return target;
                }
                Err(status) => {
                    let again = [Code::Unavailable, Code::Aborted].contains(&status.code());
                    assert!(again && since.elapsed() < PATIENCE / 2, "{status:?}\n{}", self.log());
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    pub fn unpublish(&self, wanted: &Wanted) -> Result<(), Status> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: wanted.volume_id.clone(),
            target_path: text(&self.target(wanted)).to_owned(),
        };
        let mut client = self.client();
        self.block_on(client.node_unpublish_volume(request)).map(drop)
    }

    /// The target is gone afterwards.
    #[track_caller]
    pub fn unpublished(&self, wanted: &Wanted) {
        self.unpublish(wanted).unwrap_or_else(|status| panic!("{status:?}\n{}", self.log()));
        let target = self.target(wanted);
        assert!(!is_mounted(&target) && fs::symlink_metadata(&target).is_err(), "{}", target.display());
    }

    /// `CamelCase: message` of each condition.
    pub fn health(&self, volume_id: &str) -> Result<Vec<String>, Status> {
        let request = NodeGetVolumeHealthRequest { volume_id: volume_id.to_owned(), ..Default::default() };
        let mut client = self.client();
        let answer = self.block_on(client.node_get_volume_health(request))?.into_inner();
        let entries = answer.volume_health.unwrap_or_default().health_statuses;
        Ok(entries.into_iter().map(|entry| format!("{}: {}", entry.reason, entry.message)).collect())
    }

    pub fn stats(&self, wanted: &Wanted) -> Result<i64, Status> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: wanted.volume_id.clone(),
            volume_path: text(&self.target(wanted)).to_owned(),
            staging_target_path: String::new(),
        };
        let mut client = self.client();
        let answer = self.block_on(client.node_get_volume_stats(request))?.into_inner();
        Ok(answer.usage[0].total)
    }

    /// No mount of the driver is left, and no record.
    #[track_caller]
    pub fn is_clear(&self) {
        let driver = self.path("shared/driver");
        assert_eq!(mounts_below(&driver), Vec::<PathBuf>::new(), "{}", self.log());
        assert_eq!(mounts_below(&self.path("shared/pods")), Vec::<PathBuf>::new());
        for folder in ["mounts", "volumes"] {
            let left: Vec<_> = fs::read_dir(driver.join(folder)).unwrap().flatten().collect();
            assert!(left.is_empty(), "{left:?}\n{}", self.log());
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        [&mut self.engine, &mut self.plugin].into_iter().flatten().for_each(end);
        end_all(self.folder.path());
    }
}

/// The rest of a command line that runs an engine.
fn engine_of(folder: &Path, mut command: Command) -> Command {
    command.arg("setpriv").arg(format!("--reuid={ENGINE_USER}")).arg(format!("--regid={ENGINE_USER}"));
    command.args(["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
    command.arg(folder.join("flatout")).args(["csi", "engine", "--drain", "5s", "--folder"]);
    command.arg(folder.join("shared/driver"));
    command
}

/// Where processes that are killed may leave files: it goes with the test.
fn temporary(folder: &Path) -> PathBuf {
    let temporary = folder.join("tmp");
    fs::create_dir_all(&temporary).unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o777)).unwrap();
    temporary
}

fn start_in(folder: &Path, mut command: Command, log: &str, environment: &[(String, String)]) -> Child {
    let log = File::options().create(true).append(true).open(folder.join(log)).unwrap();
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("TMPDIR", temporary(folder));
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.process_group(0).spawn().unwrap()
}

/// kill -9, with the process that it has started.
fn end(child: &mut Child) {
    let serves = serving_below(child.id());
    let _ = child.kill();
    let _ = child.wait();
    if let Some(serves) = serves {
        let _ = Command::new("kill").args(["-KILL", &serves.to_string()]).stderr(Stdio::null()).status();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[track_caller]
fn mount(arguments: &[&str]) {
    assert!(Command::new("mount").args(arguments).status().unwrap().success(), "mount {arguments:?}");
}

/// The process that a parent of an engine has started.
fn serving_below(parent: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Ends every mount below that folder, dead or alive.
fn end_all(folder: &Path) {
    for point in mounts_below(folder).into_iter().rev() {
        let _ = Command::new("umount").arg("--lazy").arg(&point).stderr(Stdio::null()).status();
    }
}
