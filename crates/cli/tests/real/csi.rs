//! The Kubernetes driver, judged by csi-sanity: the tests of the specification, by those who wrote it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::clients::Lab;
use crate::guard::installed;
use crate::minio::{self, Bucket, cache};
use crate::mountinfo::{keep_mounts_from_others, mounts_below};
use crate::program::wait_until;
use crate::served::{ACCESS_KEY, SECRET_KEY};

/// The three parts of the driver, by root: what an engine without rights does is tested elsewhere.
struct Driver {
    folder: tempfile::TempDir,
    processes: Vec<Child>,
}

impl Driver {
    fn new() -> Driver {
        keep_mounts_from_others();
        let folder = tempfile::tempdir_in(std::env::temp_dir().canonicalize().unwrap()).unwrap();
        let mut driver = Driver { folder, processes: Vec::new() };
        let (shared, node, controller) =
            (driver.path("shared"), driver.endpoint("node"), driver.endpoint("controller"));
        let shared = shared.to_str().unwrap();
        driver.start(
            &["node", "--node-name", "worker-1", "--engine-user", "0"],
            &["--endpoint", &node, "--folder", shared],
        );
        driver.start(&["controller"], &["--endpoint", &controller]);
        driver.start(&["engine"], &["--folder", shared]);
        for name in ["node", "controller"] {
            wait_until("it answers", || driver.path(name).exists());
        }
        driver
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn endpoint(&self, name: &str) -> String {
        format!("unix://{}", self.path(name).display())
    }

    fn start(&mut self, part: &[&str], more: &[&str]) {
        let log = File::create(self.path(&format!("{}.log", part[0]))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatout"));
        command.arg("csi").args(part).args(more).env_clear().env("TMPDIR", self.folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.processes.push(child.unwrap());
    }

    /// All tests of the specification, with these parameters of a storage class and these keys.
    #[track_caller]
    fn is_sane(&self, parameters: &[(&str, &str)], keys: &[(&str, &str)]) {
        let program = installed("csi-sanity", &[cache().join("bin/csi-sanity")]);
        let lines = |pairs: &[(&str, &str)], indent: &str| {
            pairs.iter().map(|(key, value)| format!("{indent}{key}: \"{value}\"\n")).collect::<String>()
        };
        let calls =
            ["CreateVolume", "DeleteVolume", "NodePublishVolume", "ControllerValidateVolumeCapabilities"];
        let secrets: String =
            calls.iter().map(|call| format!("{call}Secret:\n{}", lines(keys, "  "))).collect();
        fs::write(self.path("secrets.yaml"), secrets).unwrap();
        fs::write(self.path("parameters.yaml"), lines(parameters, "")).unwrap();
        fs::create_dir_all(self.path("pods")).unwrap();
        let flag = |name: &str, value: &Path| format!("-csi.{name}={}", value.display());
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "300", &program, "-ginkgo.no-color"]);
        command.arg(format!("-csi.endpoint={}", self.endpoint("node")));
        command.arg(format!("-csi.controllerendpoint={}", self.endpoint("controller")));
        command
            .arg(flag("mountdir", &self.path("pods/mount")))
            .arg(flag("stagingdir", &self.path("pods/staging")));
        command.arg(flag("secrets", &self.path("secrets.yaml")));
        command.arg(flag("testvolumeparameters", &self.path("parameters.yaml")));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        let passed = said.lines().find(|line| line.contains("SUCCESS!")).expect("it says how many passed");
        assert!(passed.contains("35 Passed | 0 Failed"), "{passed}");
        assert_eq!(mounts_below(self.folder.path()), Vec::<PathBuf>::new());
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // An engine starts its other process again where that one is killed first.
            let id = process.id();
            let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
            let _ = process.kill();
            let _ = process.wait();
            let _ = Command::new("kill")
                .arg("-KILL")
                .args(children.split_whitespace())
                .stderr(Stdio::null())
                .status();
        }
    }
}

#[test]
fn the_driver_keeps_the_specification_at_minio() {
    let bucket = Bucket::new("csi-sanity");
    let parameters = [("bucketName", "csi-sanity"), ("path", "volumes"), ("endpoint-url", &bucket.curl.url)];
    let keys = [("key_id", minio::ACCESS_KEY), ("access_key", minio::SECRET_KEY)];
    Driver::new().is_sane(&parameters, &keys);
}

#[test]
fn the_driver_keeps_the_specification_with_oss() {
    let lab = Lab::new(&["--memory"]);
    lab.bucket("csi-sanity");
    let parameters = [("bucket", "csi-sanity"), ("url", lab.url()), ("fuseType", "ossfs2")];
    Driver::new().is_sane(&parameters, &[("akId", ACCESS_KEY), ("akSecret", SECRET_KEY)]);
}
