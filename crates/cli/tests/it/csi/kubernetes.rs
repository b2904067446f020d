//! The few calls of the API of Kubernetes that the plugin makes, answered over TLS, and the kubelet of a node
//! that runs the pods of engines. A real API server judges the same calls in tests/kubernetes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{Node, engine_of};
use crate::program::signal;

const TOKEN: &str = "a-token-of-the-plugin";
const NAMESPACE: &str = "storage";

type Objects = Arc<Mutex<BTreeMap<String, Value>>>;

pub struct Kubernetes {
    account: tempfile::TempDir,
    port: u16,
    objects: Objects,
    is_over: Arc<AtomicBool>,
}

impl Kubernetes {
    /// With the DaemonSet of the node's engines.
    pub fn new(folder_of_engines: &str) -> Kubernetes {
        let account = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        fs::write(account.path().join("ca.crt"), made.cert.pem()).unwrap();
        fs::write(account.path().join("token"), TOKEN).unwrap();
        fs::write(account.path().join("namespace"), NAMESPACE).unwrap();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![made.cert.der().clone()], key.into()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (objects, is_over) = (Objects::default(), Arc::<AtomicBool>::default());
        let (held, over) = (objects.clone(), is_over.clone());
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let (held, config) = (held.clone(), config.clone());
                thread::spawn(move || {
                    let secured = ServerConnection::new(config).unwrap();
                    // A client that breaks off is seen by the test.
                    let _ = answer(StreamOwned::new(secured, socket), &held);
                });
            }
        });
        let cluster = Kubernetes { account, port, objects, is_over };
        cluster.put(
            "/apis/apps/v1/namespaces/storage/daemonsets/engines",
            json!({
                "metadata": {"name": "engines", "uid": "7"},
                "spec": {"template": {
                    "metadata": {"labels": {"app.kubernetes.io/component": "engine"}},
                    "spec": {
                        "containers": [{"name": "engine", "args": ["csi", "engine"], "resources": {}}],
                        "volumes": [{"name": "engine", "hostPath": {"path": folder_of_engines}}],
                    },
                }},
            }),
        );
        cluster
    }

    /// What Kubernetes sets in a pod.
    pub fn environment(&self) -> Vec<(String, String)> {
        let port = self.port.to_string();
        let set = [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", &port)];
        set.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    pub fn account(&self) -> &str {
        self.account.path().to_str().unwrap()
    }

    pub fn put(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    pub fn get(&self, path: &str) -> Value {
        self.objects.lock().unwrap()[path].clone()
    }

    pub fn delete(&self, path: &str) {
        assert!(self.objects.lock().unwrap().remove(path).is_some(), "{path}");
    }

    /// Pods by their paths.
    pub fn pods(&self) -> Vec<(String, Value)> {
        pods(&self.objects)
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn pods(objects: &Objects) -> Vec<(String, Value)> {
    let objects = objects.lock().unwrap();
    let pods = objects.iter().filter(|(path, _)| path.contains("/pods/"));
    pods.map(|(path, pod)| (path.clone(), pod.clone())).collect()
}

/// One request of a connection.
fn answer(stream: impl Read + Write, objects: &Objects) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let (mut length, mut is_known) = (0, false);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap(),
            "authorization" => is_known = value == format!("Bearer {TOKEN}"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let path = words[1].split('?').next().unwrap();
    let none = || (404, json!({"kind": "Status", "message": format!("{path} not found")}));
    let (status, said) = match words[0].as_str() {
        _ if !is_known => (401, json!({"kind": "Status", "message": "Unauthorized"})),
        "GET" if path.ends_with("/pods") => {
            let items: Vec<Value> = pods(objects).into_iter().map(|(_, pod)| pod).collect();
            (200, json!({ "items": items }))
        }
        "GET" => objects.lock().unwrap().get(path).map_or_else(none, |found| (200, found.clone())),
        "POST" => {
            let object: Value = serde_json::from_slice(&body).unwrap();
            let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
            let mut objects = objects.lock().unwrap();
            match objects.contains_key(&path) {
                true => (409, json!({"kind": "Status", "message": "already exists"})),
                false => {
                    objects.insert(path, object.clone());
                    (201, object)
                }
            }
        }
        "DELETE" => objects.lock().unwrap().remove(path).map_or_else(none, |gone| (200, gone)),
        _ => (405, json!({})),
    };
    let body = said.to_string();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.get_mut().write_all((head + &body).as_bytes())?;
    stream.get_mut().flush()
}

/// Runs the pods of engines, as kubelet and a runtime do: each sees its own folder where the node's engine
/// has its own.
pub struct PodRunner {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// By the keys of their volumes.
    pub running: Arc<Mutex<HashMap<String, u32>>>,
}

impl PodRunner {
    pub fn start(node: &Node, cluster: &Kubernetes) -> PodRunner {
        let (folder, objects) = (node.path(""), cluster.objects.clone());
        let (is_over, running) =
            (Arc::<AtomicBool>::default(), Arc::<Mutex<HashMap<String, u32>>>::default());
        let (over, shown) = (is_over.clone(), running.clone());
        let run = move || {
            let mut children: HashMap<String, Child> = HashMap::new();
            while !over.load(Ordering::SeqCst) {
                let wanted: Vec<String> = pods(&objects).iter().filter_map(|(_, pod)| key_of(pod)).collect();
                for key in &wanted {
                    let runs = children.get_mut(key).is_some_and(|child| child.try_wait().unwrap().is_none());
                    if !runs {
                        children.insert(key.clone(), start(&folder, key));
                    }
                }
                children.retain(|key, child| {
                    let is_wanted = wanted.contains(key);
                    if !is_wanted {
                        signal("TERM", child.id());
                        child.wait().unwrap();
                    }
                    is_wanted
                });
                *shown.lock().unwrap() =
                    children.iter().map(|(key, child)| (key.clone(), child.id())).collect();
                thread::sleep(Duration::from_millis(20));
            }
            for (_, mut child) in children {
                super::end(&mut child);
            }
        };
        PodRunner { is_over, thread: Some(thread::spawn(run)), running }
    }
}

impl Drop for PodRunner {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Only those that a runtime would start.
fn key_of(pod: &Value) -> Option<String> {
    let may_run = pod["status"]["phase"].is_null();
    let key = pod["metadata"]["labels"]["csi.flatout.dev/volume"].as_str()?;
    may_run.then(|| key.to_owned())
}

fn start(folder: &Path, key: &str) -> Child {
    let shared: PathBuf = folder.join("shared/driver");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.args([r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#, "sh"]);
    command.arg(shared.join("alone").join(key)).arg(shared.join("engine"));
    super::start_in(folder, engine_of(folder, command), "alone.log", &[])
}
