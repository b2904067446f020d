//! Volumes that are made and deleted.

use std::collections::HashMap;
use std::fs;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use flatout_csi::proto::controller_client::ControllerClient;
use flatout_csi::proto::volume_capability::access_mode::Mode;
use flatout_csi::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use flatout_csi::proto::{
    CreateVolumeRequest, DeleteVolumeRequest, ValidateVolumeCapabilitiesRequest, Volume, VolumeCapability,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::{Node, Wanted};
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY};
use crate::program::wait_until;

/// The controller, and whoever calls it.
struct Provisioner {
    folder: tempfile::TempDir,
    child: Child,
    runtime: tokio::runtime::Runtime,
}

impl Provisioner {
    fn new() -> Provisioner {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("csi.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatout"));
        command.args(["csi", "controller", "--endpoint"]).arg(format!("unix://{}", socket.display()));
        let log = fs::File::create(folder.path().join("log")).unwrap();
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        // The socket is there before it is listened at.
        wait_until("the controller answers", || UnixStream::connect(&socket).is_ok());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Provisioner { folder, child, runtime }
    }

    fn client(&self) -> ControllerClient<Channel> {
        let socket = format!("unix://{}", self.folder.path().join("csi.sock").display());
        let endpoint = Endpoint::from_shared(socket).unwrap();
        ControllerClient::new(self.runtime.block_on(endpoint.connect()).expect("the controller answers"))
    }

    fn create(&self, name: &str, bytes: i64, parameters: &[(&str, &str)]) -> Result<Volume, Status> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(flatout_csi::proto::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            volume_capabilities: capabilities(),
            parameters: parameters.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
            secrets: secrets(),
            ..CreateVolumeRequest::default()
        };
        let mut client = self.client();
        let answer = self.runtime.block_on(client.create_volume(request))?.into_inner();
        Ok(answer.volume.unwrap())
    }

    fn delete(&self, volume_id: &str) -> Result<(), Status> {
        let request = DeleteVolumeRequest { volume_id: volume_id.to_owned(), secrets: secrets() };
        let mut client = self.client();
        self.runtime.block_on(client.delete_volume(request)).map(drop)
    }

    fn validate(&self, volume_id: &str) -> Result<(), Status> {
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: volume_id.to_owned(),
            volume_capabilities: capabilities(),
            secrets: secrets(),
            ..ValidateVolumeCapabilitiesRequest::default()
        };
        let mut client = self.client();
        let answer = self.runtime.block_on(client.validate_volume_capabilities(request))?;
        assert!(answer.into_inner().confirmed.is_some());
        Ok(())
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn secrets() -> HashMap<String, String> {
    let pairs = [("key_id", ACCESS_KEY), ("access_key", SECRET_KEY)];
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn capabilities() -> Vec<VolumeCapability> {
    vec![VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::MultiNodeMultiWriter as i32 }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }]
}

#[test]
fn volumes_are_made_used_and_deleted() {
    let (origin, node) = (Buckets::locked(&[("bucket/teams/other", b"stays")]), Node::new());
    let controller = Provisioner::new();
    let url = origin.url();
    let class = [("source", "s3://bucket/teams"), ("endpoint-url", url.as_str())];
    let volume = controller.create("pvc-1", 1 << 30, &class).unwrap();
    assert_eq!(controller.create("pvc-1", 1 << 30, &class).unwrap().volume_id, volume.volume_id);
    assert_eq!(controller.create("pvc-1", 2 << 30, &class).err().unwrap().code(), Code::AlreadyExists);
    controller.validate(&volume.volume_id).unwrap();
    let mut wanted = Wanted::of("s3://bucket", &url);
    wanted.attributes = volume.volume_context.clone();
    (wanted.secrets, wanted.volume_id) = (secrets(), "pv".to_owned());
    let target = node.published(&wanted);
    fs::write(target.join("f"), b"content").unwrap();
    fs::create_dir(target.join("d")).unwrap();
    fs::write(target.join("d/g"), b"content").unwrap();
    assert_eq!(crate::folder::names(&target), ["d", "f"], "the mark is no file");
    node.unpublished(&wanted);
    assert_eq!(fs::read(origin.root().join("bucket/teams/pvc-1/f")).unwrap(), b"content");
    controller.delete(&volume.volume_id).unwrap();
    controller.delete(&volume.volume_id).unwrap();
    assert!(!origin.root().join("bucket/teams/pvc-1/f").exists());
    assert_eq!(fs::read(origin.root().join("bucket/teams/other")).unwrap(), b"stays");
    assert_eq!(controller.validate(&volume.volume_id).unwrap_err().code(), Code::NotFound);
    node.is_clear();
}

#[test]
fn what_was_not_made_for_a_volume_is_not_deleted() {
    let origin = Buckets::locked(&[("bucket/data/f", b"stays")]);
    let controller = Provisioner::new();
    let url = origin.url();
    let class = [("source", "s3://bucket"), ("endpoint-url", url.as_str())];
    let refused = controller.create("data", 0, &class).err().unwrap();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(refused.message().contains("it holds objects, and no volume was made there"), "{refused:?}");
    let id = format!("s3://bucket/data?endpoint-url={}", url.replace(':', "%3A").replace('/', "%2F"));
    // There is no mark: nothing is known of such a volume.
    controller.delete(&id).unwrap();
    controller.delete("pv-of-somebody-else").unwrap();
    let shared = [class[0], class[1], ("volumeAs", "sharepath")];
    let volume = controller.create("pvc-2", 0, &shared).unwrap();
    assert_eq!(volume.volume_context["source"], "s3://bucket");
    controller.delete(&volume.volume_id).unwrap();
    let retains = [class[0], class[1], ("csi.alibabacloud.com/reclaimPolicy", "Retain")];
    let volume = controller.create("pvc-3", 0, &retains).unwrap();
    controller.delete(&volume.volume_id).unwrap();
    assert_eq!(fs::read(origin.root().join("bucket/data/f")).unwrap(), b"stays");
    for (name, parameters, says) in [
        ("a/b", &class[..], "no name of a folder"),
        ("", &class[..], "name is missing"),
        ("pvc-4", &[("source", "s3://bucket"), ("cache", "emptyDir")][..], "cache"),
        ("pvc-4", &[][..], "no bucket is named"),
    ] {
        let refused = controller.create(name, 0, parameters).err().unwrap();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(says), "{refused:?}");
    }
}
