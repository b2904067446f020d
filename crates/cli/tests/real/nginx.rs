//! nginx over a folder, started once for all tests; each test has folders of its own in it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::guard::{Guard, free_port, installed, on_path};

pub struct Nginx {
    pub url: String,
    guard: Guard,
}

/// A folder of a test's own, and what nginx calls it.
pub struct Site {
    pub folder: PathBuf,
    /// `http://HOST:PORT/NAME`
    pub url: String,
}

static SHARED: LazyLock<Nginx> = LazyLock::new(Nginx::start);

impl Nginx {
    fn start() -> Nginx {
        let program = installed("nginx", &on_path("nginx"));
        let folder = tempfile::tempdir().unwrap();
        // As root nginx reads as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["site", "temporary"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let port = free_port();
        let prefix = folder.path().to_str().unwrap().to_owned();
        let settings = format!("{prefix}/nginx.conf");
        fs::write(&settings, self::settings(&prefix, port)).unwrap();
        let command = [&program, "-e", "stderr", "-p", &prefix, "-c", &settings];
        let mut guard = Guard::start(folder, &command, &[]);
        guard.wait_for("nginx", |_| std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        Nginx { url: format!("http://127.0.0.1:{port}"), guard }
    }
}

impl Site {
    /// A new folder; its name begins with the kind of location (`plain`, `whole`, `closing`, `slow`).
    pub fn new(name: &str) -> Site {
        let folder = SHARED.guard.folder().join("site").join(name);
        fs::create_dir(&folder).unwrap();
        Site { folder, url: format!("{}/{name}", SHARED.url) }
    }

    /// Writes or replaces a file; its URL when `name` needs no encoding.
    pub fn put(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.join(name);
        let whole = path.with_extension("whole");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&whole, bytes).unwrap();
        readable(&whole);
        fs::rename(&whole, &path).unwrap();
        format!("{}/{name}", self.url)
    }
}

fn readable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

/// One process, so that killing it leaves no worker behind.
fn settings(prefix: &str, port: u16) -> String {
    format!(
        "daemon off; master_process off; pid {prefix}/pid; error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    access_log off; default_type application/octet-stream;
    sendfile on; tcp_nopush on; keepalive_requests 10000000;
    client_body_temp_path {prefix}/temporary; proxy_temp_path {prefix}/temporary;
    fastcgi_temp_path {prefix}/temporary; uwsgi_temp_path {prefix}/temporary; scgi_temp_path {prefix}/temporary;
    map $arg_prefix $listing {{ \"\" listing; default empty; }}
    server {{
        listen 127.0.0.1:{port}; root {prefix}/site; merge_slashes off;
        location /forbidden {{ return 403; }}
        location /busy {{ return 503; }}
        location /whole {{ max_ranges 0; }}
        location /closing {{ keepalive_requests 2; }}
        location ~ ^/listed/?$ {{ default_type application/xml; try_files /listed-$listing.xml =404; }}
        location /slow {{ limit_rate 128k; }}
    }}
}}
"
    )
}
