//! MinIO, started once for all tests; each test has buckets of its own.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use crate::curl::Curl;
use crate::flatout;
use crate::guard::{Guard, free_port, installed};

pub const ACCESS_KEY: &str = "FLATOUTTESTKEY";
pub const SECRET_KEY: &str = "a-secret-of-the-tests/+=";

/// A server that anybody may ask for buckets.
pub struct MinIo {
    pub url: String,
    _guard: Guard,
}

/// A bucket of a test's own in the shared server.
#[derive(Clone)]
pub struct Bucket {
    pub name: String,
    pub curl: Curl,
}

static SHARED: LazyLock<MinIo> = LazyLock::new(MinIo::start);

impl MinIo {
    fn start() -> MinIo {
        let program = program();
        let folder = tempfile::tempdir().unwrap();
        let (address, store) = (format!("127.0.0.1:{}", free_port()), folder.path().join("store"));
        let console = format!("127.0.0.1:{}", free_port());
        let store = store.to_str().unwrap();
        let command = [&program, "server", "--address", &address, "--console-address", &console, store];
        let variables = [
            ("MINIO_ROOT_USER", ACCESS_KEY),
            ("MINIO_ROOT_PASSWORD", SECRET_KEY),
            ("MINIO_BROWSER", "off"),
            ("MINIO_UPDATE", "off"),
        ];
        let mut guard = Guard::start(folder, &command, &variables);
        let url = format!("http://{address}");
        let curl = Curl { url: url.clone(), keys: Some((ACCESS_KEY.to_owned(), SECRET_KEY.to_owned())) };
        guard.wait_for("MinIO", |_| ready(&curl).then_some(()));
        MinIo { url, _guard: guard }
    }
}

impl Bucket {
    /// A new bucket; the name must be the test's own.
    #[track_caller]
    pub fn new(name: &str) -> Bucket {
        // Each test says what is missing: after the first nobody would learn more than that the shared one
        // failed.
        program();
        let keys = Some((ACCESS_KEY.to_owned(), SECRET_KEY.to_owned()));
        let curl = Curl { url: SHARED.url.clone(), keys };
        curl.ask("PUT", &format!("/{name}"), &[], None).is(200);
        Bucket { name: name.to_owned(), curl }
    }

    #[track_caller]
    pub fn put(&self, key: &str, body: &[u8], headers: &[&str]) {
        self.curl.put(&self.name, key, body, headers);
    }

    /// `s3://BUCKET/KEY`
    pub fn s3(&self, key: &str) -> String {
        format!("s3://{}/{key}", self.name)
    }

    /// The program with this origin and its keys.
    pub fn flatout(&self, arguments: &[&str]) -> Command {
        self.flatout_as(
            &[("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)],
            arguments,
        )
    }

    /// The program with this origin and other variables.
    pub fn flatout_as(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Command {
        let mut command = flatout(&[arguments, &["--endpoint-url", &self.curl.url]].concat());
        command.envs(variables.iter().copied());
        command
    }
}

/// Where `scripts/deps.sh` puts what it builds, by the same rule: `FLATOUT_CACHE`, else below `HOME`, else
/// below the home of the password file.
pub fn cache() -> PathBuf {
    let home = || std::env::home_dir().expect("HOME is set").join(".cache/flatout");
    let named = std::env::var_os("FLATOUT_CACHE").filter(|named| !named.is_empty());
    named.map_or_else(home, PathBuf::from)
}

fn program() -> String {
    installed("MinIO", &[cache().join("bin/minio")])
}

/// Whether it serves buckets: on a busy machine /minio/health/ready says so sooner.
fn ready(curl: &Curl) -> bool {
    let port = curl.url.trim_start_matches("http://");
    // Whoever connects to a free port from a free port may meet itself.
    let is_other = |stream: std::net::TcpStream| stream.local_addr().ok() != stream.peer_addr().ok();
    std::net::TcpStream::connect(port).is_ok_and(is_other) && curl.ask("GET", "/", &[], None).status == 200
}
