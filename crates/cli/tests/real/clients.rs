//! Clients of OSS and S3 that nobody here wrote, but for a few lines around each SDK, over `flatout serve`.
//!
//! `scripts/deps.sh` builds and installs them from what is pinned in the folder `clients/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bytes;
use crate::guard::{installed, on_path};
use crate::minio::cache;
use crate::program::{Ended, run};
use crate::served::{ACCESS_KEY, SECRET_KEY, Served};

/// The keys that a client has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    Right,
    WrongSecret,
    Unknown,
}

/// An origin, and a folder with files for its clients.
pub struct Lab {
    pub served: Served,
    folder: tempfile::TempDir,
}

impl Lab {
    /// Lets in who has the keys. The store is an argument of `flatout serve`.
    pub fn new(store: &[&str]) -> Lab {
        Lab { served: Served::locked(store), folder: tempfile::tempdir().unwrap() }
    }

    pub fn url(&self) -> &str {
        &self.served.curl.url
    }

    /// `HOST:PORT`
    pub fn address(&self) -> &str {
        self.url().trim_start_matches("http://")
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("temporary paths are text").to_owned()
    }

    /// A file of so many bytes; returns them.
    pub fn file(&self, name: &str, length: usize) -> Vec<u8> {
        let body = bytes(length);
        fs::write(self.path(name), &body).unwrap();
        body
    }

    #[track_caller]
    pub fn is_file(&self, name: &str, body: &[u8]) {
        assert!(fs::read(self.path(name)).unwrap() == body, "{name}: other bytes");
    }

    /// A new bucket, made in the dialect of S3.
    #[track_caller]
    pub fn bucket(&self, name: &str) {
        self.served.curl.ask("PUT", &format!("/{name}"), &[], None).is(200);
    }

    pub fn ossutil(&self, version: &str, keys: Keys, arguments: &[&str]) -> Ended {
        let (access_key, secret_key) = pair(keys);
        let mut command = self.command("ossutil", &cache().join("bin/ossutil"), keys);
        command.args(arguments).args(["--force-path-style", "-e", self.url()]);
        command.args(["-i", access_key, "-k", secret_key]);
        if version == "v4" {
            command.args(["--sign-version", "v4", "--region", "cn-hangzhou"]);
        }
        run(&mut command)
    }

    /// The program around the OSS Go SDK; `flags` come before the command.
    pub fn oss_go(&self, keys: Keys, flags: &[&str], arguments: &[&str]) -> Ended {
        let mut command = self.command("oss-go", &cache().join("bin/oss-go"), keys);
        // The last one counts.
        run(command.args(["-endpoint", self.url()]).args(flags).args(arguments))
    }

    /// One of the scripts in `clients/`.
    pub fn python(&self, script: &str, keys: Keys, arguments: &[&str]) -> Ended {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/clients").join(script);
        let mut command = self.command("python", &cache().join("python/bin/python"), keys);
        run(command.arg("-B").arg(script).arg(self.url()).args(arguments))
    }

    pub fn aws(&self, keys: Keys, arguments: &[&str]) -> Ended {
        let mut command = self.command("aws", &cache().join("python/bin/aws"), keys);
        run(command.args(["--endpoint-url", self.url(), "--region", "us-east-1"]).args(arguments))
    }

    /// Status and body of a URL, asked for with nothing else: what a browser would get.
    pub fn fetch(&self, url: &str) -> (u16, Vec<u8>) {
        let to = self.path("fetched");
        let ended = run(Command::new(installed("curl", &on_path("curl"))).args([
            "--silent",
            "--globoff",
            "--max-time",
            "60",
            "--output",
            &to,
            "--write-out",
            "%{http_code}",
            url,
        ]));
        (good(ended).parse().expect("curl writes the status"), fs::read(to).unwrap())
    }

    /// A client that knows the keys by every name, and nothing of the machine; it works in the lab's folder.
    fn command(&self, name: &str, place: &Path, keys: Keys) -> Command {
        let (access_key, secret_key) = pair(keys);
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "90"]).arg(installed(name, &[PathBuf::from(place)]));
        command.env_clear().current_dir(self.folder.path()).env("HOME", self.folder.path());
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs([("OSS_ACCESS_KEY_ID", access_key), ("OSS_ACCESS_KEY_SECRET", secret_key)]);
        command.envs([("AWS_ACCESS_KEY_ID", access_key), ("AWS_SECRET_ACCESS_KEY", secret_key)]);
        command.envs([("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_MAX_ATTEMPTS", "1"), ("LANG", "C.UTF-8")]);
        command
    }
}

fn pair(keys: Keys) -> (&'static str, &'static str) {
    match keys {
        Keys::Right => (ACCESS_KEY, SECRET_KEY),
        Keys::WrongSecret => (ACCESS_KEY, "another-secret/+=x"),
        Keys::Unknown => ("NOBODYSKEY", SECRET_KEY),
    }
}

/// The run went well; what it said.
#[track_caller]
pub fn good(ended: Ended) -> String {
    assert_eq!(ended.code, Some(0), "{}{}", String::from_utf8_lossy(&ended.stdout), ended.stderr);
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// The run failed, and said this on the way.
#[track_caller]
pub fn bad(ended: Ended, says: &str) {
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), ended.stderr);
    assert!(ended.code.is_some_and(|code| code != 0 && code != 124), "code {:?}: {said}", ended.code);
    assert!(said.contains(says), "{said}lacks {says:?}");
}
