//! A MinIO of a test's own that can be killed and started again. Its objects are made once for all tests.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::certificates::{Authority, NOW};
use crate::folder::Folder;
use crate::guard::{Guard, free_port, installed, on_path};
use crate::minio::{ACCESS_KEY, SECRET_KEY, cache};
use crate::program::{run, signal};

pub const BUCKET: &str = "bucket";
/// The key of the large object.
pub const LARGE: &str = "model";
/// Before the keys of the small ones.
pub const SMALL: &str = "small/";
/// More than a page of a listing.
pub static SMALL_COUNT: LazyLock<usize> = LazyLock::new(|| if *ALL { 2000 } else { 1200 });
/// Before the keys of objects that lie each in a folder of its own.
pub const TREE: &str = "tree/";
pub const TREE_COUNT: usize = 100;

/// Whether every outage is to be tried, and with large objects: `FLATOUT_OUTAGES=all`.
pub static ALL: LazyLock<bool> = LazyLock::new(|| match std::env::var("FLATOUT_OUTAGES").as_deref() {
    Err(_) | Ok("") => false,
    Ok("all") => true,
    Ok(other) => panic!("FLATOUT_OUTAGES is 'all' or not set, not {other:?}"),
});

/// What the large object holds: every page of it begins with its own offset.
pub static LARGE_BODY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let length = if *ALL { 200 << 20 } else { 24 << 20 };
    let mut body = crate::bytes(1 << 20).repeat(length >> 20);
    for (number, page) in body.chunks_mut(4096).enumerate() {
        page[..8].copy_from_slice(&(number as u64 * 4096).to_be_bytes());
    }
    body
});

/// The name of a small object. A page of a listing of such names is more than a pipe holds.
pub fn small_name(number: usize) -> String {
    format!("an-object-with-a-name-as-long-as-those-of-datasets-that-programs-have-written-{number:04}.json")
}

pub fn small_body(number: usize) -> Vec<u8> {
    format!("object {number} of many\n").repeat(1 + number % 200).into_bytes()
}

/// MinIO at an address of its own, over a copy of what was made once.
pub struct MinIo {
    pub address: SocketAddr,
    /// What signed its certificate, if it speaks TLS.
    pub authority: Option<Authority>,
    home: Guard,
    server: Option<Guard>,
}

impl MinIo {
    /// With TLS its certificate is for its own address, and for these.
    pub fn start(tls: bool, also: &[SocketAddr]) -> MinIo {
        let home = home();
        let from = MADE.folder().join("store");
        let mut copy = Command::new("cp");
        run(copy.args(["-a", "--reflink=auto"]).arg(from).arg(home.folder())).clean();
        MinIo::over(home, tls, also)
    }

    fn over(home: Guard, tls: bool, also: &[SocketAddr]) -> MinIo {
        let address = own_address();
        let authority = tls.then(Authority::new);
        if let Some(authority) = &authority {
            let names: Vec<String> = also.iter().chain([&address]).map(|at| at.ip().to_string()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let identity = authority.identity(&names, NOW);
            let folder = certificates(&home);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("public.crt"), identity.certificate).unwrap();
            fs::write(folder.join("private.key"), identity.key).unwrap();
        }
        let mut minio = MinIo { address, authority, home, server: None };
        minio.restart();
        minio
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Stops its process: connections to it are taken, and nothing is answered.
    pub fn stop(&self) {
        signal("STOP", self.server.as_ref().expect("it runs").pid("minio"));
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        signal("CONT", self.server.as_ref().expect("it runs").pid("minio"));
    }

    /// Starts it where it was; it is ready when this returns.
    #[track_caller]
    pub fn restart(&mut self) {
        let program = installed("MinIO", &[cache().join("bin/minio")]);
        let (address, console) = (self.address.to_string(), own_address().to_string());
        let (store, certificates) = (self.home.folder().join("store"), certificates(&self.home));
        let (store, certificates) = (store.to_str().unwrap(), certificates.to_str().unwrap());
        let command =
            [&program, "server", "--address", &address, "--console-address", &console, "--certs-dir"];
        let variables = [
            ("MINIO_ROOT_USER", ACCESS_KEY),
            ("MINIO_ROOT_PASSWORD", SECRET_KEY),
            ("MINIO_BROWSER", "off"),
            ("MINIO_UPDATE", "off"),
        ];
        let command = [&command[..], &[certificates, store]].concat();
        let mut server = Guard::start(tempfile::tempdir().unwrap(), &command, &variables);
        server.wait_for("MinIO", |_| self.is_ready().then_some(()));
        self.server = Some(server);
    }

    /// `https://127.…:…` or `http://…`
    pub fn url(&self) -> String {
        self.url_at(self.address)
    }

    /// Its URL through something that listens there.
    pub fn url_at(&self, address: SocketAddr) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    fn is_ready(&self) -> bool {
        std::net::TcpStream::connect(self.address).is_ok() && {
            let url = format!("{}/minio/health/ready", self.url());
            self.curl(&["--fail", &url]).output().unwrap().status.success()
        }
    }

    fn curl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(installed("curl", &on_path("curl")));
        command.args(["--silent", "--show-error", "--max-time", "60", "--noproxy", "*"]);
        if let Some(authority) = &self.authority {
            command.args(["--cacert", &authority.bundle()]);
        }
        command.args(arguments);
        command
    }

    /// Asks for something by a signed request, which must go well.
    #[track_caller]
    fn ask(&self, arguments: &[&str]) {
        let keys = format!("{ACCESS_KEY}:{SECRET_KEY}");
        let signed = ["--fail-with-body", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &keys];
        let unsigned_body = ["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"];
        let ended = run(&mut self.curl(&[&signed[..], &unsigned_body, arguments].concat()));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
}

/// A folder that goes with the tests, however they end.
fn home() -> Guard {
    Guard::start(tempfile::tempdir().unwrap(), &["sleep", "infinity"], &[])
}

fn certificates(home: &Guard) -> PathBuf {
    home.folder().join("certificates")
}

/// The store that MinIO leaves when all objects are in it.
static MADE: LazyLock<Guard> = LazyLock::new(|| {
    let home = home();
    fs::create_dir(home.folder().join("store")).unwrap();
    let minio = MinIo::over(home, false, &[]);
    let made = Folder::new();
    fs::write(made.at(LARGE), &*LARGE_BODY).unwrap();
    let small = made.path().join("small");
    fs::create_dir(&small).unwrap();
    for number in 0..*SMALL_COUNT {
        fs::write(small.join(small_name(number)), small_body(number)).unwrap();
    }
    let bucket = format!("{}/{BUCKET}", minio.url());
    minio.ask(&["--request", "PUT", &bucket]);
    minio.ask(&["--upload-file", &made.at(LARGE), &format!("{bucket}/{LARGE}")]);
    upload(&minio, &small, &format!("{bucket}/{SMALL}"));
    let tree = format!("{bucket}/{TREE}folder-[00-{:02}]/inside", TREE_COUNT - 1);
    let inside = small.join(small_name(0));
    minio.ask(&["--upload-file", inside.to_str().unwrap(), "--output", "/dev/null", &tree]);
    let MinIo { home, .. } = minio;
    home
});

/// All files of the folder in one run of curl, many at a time.
fn upload(minio: &MinIo, folder: &Path, url: &str) {
    let names = small_name(0).replace("0000", &format!("[0000-{:04}]", *SMALL_COUNT - 1));
    let files = folder.join(names);
    minio.ask(&["--parallel", "--upload-file", files.to_str().unwrap(), "--output", "/dev/null", url]);
}

/// An address of the loopback network for one server alone: while nobody listens there, no other test is
/// given its port, and no client is connected to itself.
pub fn own_address() -> SocketAddr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let count = COUNT.fetch_add(1, Ordering::Relaxed) as u8;
    SocketAddr::from((IpAddr::from(Ipv4Addr::new(127, high | 1, low, count.max(1))), free_port()))
}
