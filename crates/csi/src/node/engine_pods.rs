//! Pods of engines that serve one volume alone (`isolation: pod`). Each is as the DaemonSet of the node's
//! engines says, but for its memory and for the folder that it shares with the plugin, which has a socket for
//! that volume and no other.

use std::path::Path;

use serde_json::{Value, json};
use tonic::Code;

use super::kubernetes::Kubernetes;
use super::records::Record;
use crate::link::{Failure, NodeFolder};

/// A label of these pods: the name of the volume's mount. And one that keeps the DaemonSet's hands off them.
const OF_VOLUME: &str = "csi.flatout.dev/volume";
const COMPONENT: &str = "app.kubernetes.io/component";
const ALONE: &str = "volume-engine";
/// An annotation: the generation of the DaemonSet.
const MADE_OF: &str = "csi.flatout.dev/generation";
/// What an engine needs beside the memory of its volume.
const BESIDE_BYTES: u64 = 256 << 20;

/// Makes and deletes these pods of one node.
#[derive(Debug)]
pub struct EnginePods {
    /// The DaemonSet of the node's engines, in the namespace of this process.
    pub daemon_set: String,
    pub node: String,
    pub folder: NodeFolder,
}

impl EnginePods {
    fn name(&self, engine: &str) -> String {
        format!("{}-{engine}", self.daemon_set)
    }

    fn pods(api: &Kubernetes) -> String {
        format!("/api/v1/namespaces/{}/pods", api.namespace())
    }

    fn path(&self, api: &Kubernetes, engine: &str) -> String {
        format!("{}/{}", EnginePods::pods(api), self.name(engine))
    }

    /// Sees to it that there is a pod for this volume, whose engine is not connected, on its way at least.
    ///
    /// # Errors
    /// `Unavailable` where it has to be tried again; the API's refusal.
    pub fn ensure(&self, api: &Kubernetes, record: &Record) -> Result<(), Failure> {
        let engine = record.only().unwrap_or_default();
        let (name, path) = (self.name(engine), self.path(api, engine));
        let later =
            |why: String| Err(Failure::new(Code::Unavailable, format!("its engine's pod {name} {why}")));
        let found = api.get(&path)?;
        let daemon_set = self.daemon_set(api)?;
        match found {
            Some(pod) if !pod["metadata"]["deletionTimestamp"].is_null() => {
                later("is being deleted: another follows it".to_owned())
            }
            Some(pod) if matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded")) => {
                let why = said(&pod);
                api.delete(&path)?;
                later(format!("has ended: {why}: another follows it"))
            }
            // Its program may speak another version of the plugin's language.
            Some(pod) if pod["metadata"]["annotations"][MADE_OF] != json!(generation(&daemon_set)) => {
                api.delete(&path)?;
                later("is of another generation of the DaemonSet: another follows it".to_owned())
            }
            Some(_) => Ok(()),
            // Where another call was quicker there is one, too.
            None => api.create(&EnginePods::pods(api), &self.pod(&daemon_set, record)?).map(drop),
        }
    }

    fn daemon_set(&self, api: &Kubernetes) -> Result<Value, Failure> {
        let path = format!("/apis/apps/v1/namespaces/{}/daemonsets/{}", api.namespace(), self.daemon_set);
        let why = || {
            format!("isolation: pod: there is no DaemonSet {} that says how engines are run", self.daemon_set)
        };
        api.get(&path)?.ok_or_else(|| Failure::new(Code::FailedPrecondition, why()))
    }

    /// Begins to delete the pod of a volume that is gone.
    ///
    /// # Errors
    /// The API's.
    pub fn delete(&self, api: &Kubernetes, engine: &str) -> Result<(), Failure> {
        api.delete(&self.path(api, engine))
    }

    /// Deletes what a plugin before has left for volumes that are gone. Returns how many.
    ///
    /// # Errors
    /// The API's.
    pub fn delete_others(&self, api: &Kubernetes, is_known: impl Fn(&str) -> bool) -> Result<usize, Failure> {
        let pods = EnginePods::pods(api);
        let of_node = format!("{pods}?labelSelector={OF_VOLUME}&fieldSelector=spec.nodeName%3D{}", self.node);
        let found = api.get(&of_node)?.unwrap_or_default();
        let engines = found["items"].as_array().into_iter().flatten();
        let engines = engines.filter_map(|pod| pod["metadata"]["labels"][OF_VOLUME].as_str());
        let left: Vec<&str> = engines.filter(|engine| !is_known(engine)).collect();
        left.iter().try_for_each(|engine| self.delete(api, engine))?;
        Ok(left.len())
    }

    /// Why the engine of this volume has not come, as far as its pod says.
    pub fn why_not(&self, api: &Kubernetes, engine: &str) -> String {
        let name = self.name(engine);
        let state = match api.get(&self.path(api, engine)) {
            Ok(Some(pod)) => said(&pod),
            Ok(None) => "it is gone".to_owned(),
            Err(failure) => failure.message,
        };
        format!(
            "its engine's pod {name} is not there yet: {state}: kubectl -n {} describe pod {name}",
            api.namespace()
        )
    }

    fn pod(&self, daemon_set: &Value, record: &Record) -> Result<Value, Failure> {
        let engine = record.only().unwrap_or_default();
        let template = &daemon_set["spec"]["template"];
        let (mut labels, mut spec) = (template["metadata"]["labels"].clone(), template["spec"].clone());
        labels[OF_VOLUME] = json!(engine);
        let mut annotations = template["metadata"]["annotations"].clone();
        annotations[MADE_OF] = json!(generation(daemon_set));
        labels[COMPONENT] = json!(ALONE);
        spec["nodeName"] = json!(self.node);
        spec["restartPolicy"] = json!("Always");
        let (shared, own) = (self.folder.engine(), self.folder.alone(engine));
        let volumes = spec["volumes"].as_array_mut().into_iter().flatten();
        let mut of_host = volumes.filter_map(|volume| volume.pointer_mut("/hostPath/path"));
        // With the node's own folder it would be a second engine of the node.
        let is_shared = |path: &&mut Value| path.as_str().is_some_and(|path| Path::new(path) == shared);
        let Some(path) = of_host.find(is_shared) else {
            let why = format!(
                "isolation: pod: the DaemonSet {} has no volume of {}",
                self.daemon_set,
                shared.display()
            );
            return Err(Failure::new(Code::FailedPrecondition, why));
        };
        *path = json!(own);
        let uses_ports_of_node = spec["hostNetwork"] == json!(true);
        for container in spec["containers"].as_array_mut().into_iter().flatten() {
            let memory = json!((record.memory_bytes + BESIDE_BYTES).to_string());
            container["resources"]["limits"]["memory"] = memory.clone();
            container["resources"]["requests"]["memory"] = memory;
            if !uses_ports_of_node {
                continue;
            }
            // The node's engine has the port already.
            for asks in ["ports", "readinessProbe", "livenessProbe"] {
                container.as_object_mut().map(|container| container.remove(asks));
            }
            if let Some(args) = container["args"].as_array_mut() {
                args.retain(|argument| {
                    !argument.as_str().is_some_and(|argument| argument.starts_with("--metrics"))
                });
            }
        }
        let about = &daemon_set["metadata"];
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name(engine),
                "labels": labels,
                "annotations": annotations,
                // It goes with the driver.
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": about["name"], "uid": about["uid"]},
                ],
            },
            "spec": spec,
        }))
    }
}

/// Of a DaemonSet: another one once its template is another.
fn generation(daemon_set: &Value) -> String {
    daemon_set["metadata"]["generation"].to_string()
}

/// What a pod says of its state: the first reason that it has.
fn said(pod: &Value) -> String {
    let status = &pod["status"];
    let of_containers = status["containerStatuses"].as_array().into_iter().flatten();
    let of_containers = of_containers
        .flat_map(|container| [&container["state"]["waiting"], &container["state"]["terminated"]]);
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let unmet = conditions.filter(|condition| condition["status"] == json!("False"));
    let reasons = std::iter::once(status).chain(of_containers).chain(unmet).find_map(|of| {
        let reason = of["reason"].as_str()?;
        let message = of["message"].as_str().map(|message| format!(" ({message})")).unwrap_or_default();
        Some(format!("{reason}{message}"))
    });
    reasons.unwrap_or_else(|| status["phase"].as_str().unwrap_or("Pending").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{Identity, Volume};

    fn record() -> Record {
        let volume = Volume {
            source: "s3://models/".into(),
            knobs: Vec::new(),
            system: Vec::new(),
            no_permissions: false,
            read_only: true,
            identity: Identity::Driver,
            is_isolated: true,
            index: None,
        };
        Record {
            volume_id: "models".into(),
            key: "0123".into(),
            volume,
            memory_bytes: 1 << 30,
            alone: Some("0123".into()),
            index: None,
            targets: Vec::new(),
        }
    }

    fn daemon_set(host_network: bool) -> Value {
        json!({
            "metadata": {"name": "flatout-csi-engine", "uid": "7"},
            "spec": {"template": {
                "metadata": {"labels": {"app.kubernetes.io/name": "flatout-csi", COMPONENT: "engine"}},
                "spec": {
                    "hostNetwork": host_network,
                    "containers": [{
                        "args": ["csi", "engine", "--metrics=0.0.0.0:9102"],
                        "ports": [{"containerPort": 9102}],
                        "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "4608Mi"}},
                    }],
                    "volumes": [
                        {"name": "engine", "hostPath": {"path": "/var/lib/flatout-csi//engine"}},
                        {"name": "tmp", "emptyDir": {}},
                    ],
                },
            }},
        })
    }

    #[test]
    fn a_pod_is_as_the_nodes_engine_with_a_folder_and_memory_of_its_own() {
        let folder = NodeFolder::new("/var/lib/flatout-csi");
        let pods = EnginePods { daemon_set: "flatout-csi-engine".into(), node: "worker-1".into(), folder };
        let pod = pods.pod(&daemon_set(false), &record()).unwrap();
        assert_eq!(pod["metadata"]["name"], "flatout-csi-engine-0123");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], "7");
        let labels = json!({"app.kubernetes.io/name": "flatout-csi", COMPONENT: ALONE, OF_VOLUME: "0123"});
        assert_eq!(pod["metadata"]["labels"], labels);
        let spec = &pod["spec"];
        assert_eq!((&spec["nodeName"], &spec["restartPolicy"]), (&json!("worker-1"), &json!("Always")));
        let volumes = json!([
            {"name": "engine", "hostPath": {"path": "/var/lib/flatout-csi/alone/0123"}},
            {"name": "tmp", "emptyDir": {}},
        ]);
        assert_eq!(spec["volumes"], volumes);
        let container = &spec["containers"][0];
        let memory = ((1_u64 << 30) + BESIDE_BYTES).to_string();
        let resources = json!({"requests": {"cpu": "100m", "memory": memory}, "limits": {"memory": memory}});
        assert_eq!(container["resources"], resources);
        assert_eq!(container["args"][2], "--metrics=0.0.0.0:9102");
        // Ports of the node are the node's engine's.
        let of_host = pods.pod(&daemon_set(true), &record()).unwrap();
        let container = &of_host["spec"]["containers"][0];
        assert_eq!((&container["args"], &container["ports"]), (&json!(["csi", "engine"]), &Value::Null));
    }

    #[test]
    fn a_pod_says_why_it_does_not_run() {
        assert_eq!(said(&json!({"status": {"phase": "Pending"}})), "Pending");
        let failed = json!({"status": {"phase": "Failed", "reason": "OutOfmemory", "message": "no room"}});
        assert_eq!(said(&failed), "OutOfmemory (no room)");
        let waiting = json!({"status": {
            "phase": "Pending",
            "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
        }});
        assert_eq!(said(&waiting), "ImagePullBackOff");
    }
}
