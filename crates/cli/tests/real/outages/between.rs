//! Servers between the program and its origin: nginx as a gateway, tinyproxy as an HTTP proxy.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;

use super::origin::own_address;
use crate::guard::{Guard, installed, on_path};

/// nginx before an origin. It answers 502 while that is gone, and another status when told.
pub struct Gateway {
    pub address: SocketAddr,
    guard: Guard,
}

impl Gateway {
    pub fn before(upstream: SocketAddr) -> Gateway {
        let program = installed("nginx", &on_path("nginx"));
        let folder = tempfile::tempdir().unwrap();
        // As root nginx looks for files as another user.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("temporary")).unwrap();
        let prefix = folder.path().to_str().unwrap().to_owned();
        let (address, settings) = (own_address(), format!("{prefix}/nginx.conf"));
        fs::write(&settings, gateway_settings(&prefix, address, upstream)).unwrap();
        let command = [&program, "-e", "stderr", "-p", &prefix, "-c", &settings];
        let mut guard = Guard::start(folder, &command, &[]);
        guard.wait_for("nginx", |_| TcpStream::connect(address).ok());
        Gateway { address, guard }
    }

    /// Answers every new request with this status, which is 500 or 503, by a page of its own.
    pub fn refuse_with(&self, status: u16) {
        fs::write(self.guard.folder().join(status.to_string()), "").unwrap();
    }

    /// Asks the origin again.
    pub fn serve(&self) {
        for status in ["500", "503"] {
            let _ = fs::remove_file(self.guard.folder().join(status));
        }
    }
}

/// One process, so that killing it leaves no worker behind.
fn gateway_settings(prefix: &str, address: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "daemon off; master_process off; pid {prefix}/pid; error_log stderr crit;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {prefix}/temporary; proxy_temp_path {prefix}/temporary;
    fastcgi_temp_path {prefix}/temporary; uwsgi_temp_path {prefix}/temporary; scgi_temp_path {prefix}/temporary;
    server {{
        listen {address};
        location / {{
            if (-f {prefix}/500) {{ return 500; }}
            if (-f {prefix}/503) {{ return 503; }}
            client_max_body_size 0; proxy_request_buffering off;
            proxy_pass http://{upstream}; proxy_http_version 1.1; proxy_buffering off;
            proxy_set_header Host $http_host; proxy_set_header Connection \"\";
        }}
    }}
}}
"
    )
}

/// tinyproxy, for requests and for CONNECT.
pub struct Tinyproxy {
    pub address: SocketAddr,
    _guard: Guard,
}

impl Tinyproxy {
    pub fn start() -> Tinyproxy {
        let program = installed("tinyproxy", &on_path("tinyproxy"));
        let folder = tempfile::tempdir().unwrap();
        let (address, settings) = (own_address(), folder.path().join("tinyproxy.conf"));
        let lines = format!(
            "Listen {}\nPort {}\nTimeout 600\nMaxClients 1000\nAllow 127.0.0.0/8\nLogLevel Critical\n",
            address.ip(),
            address.port()
        );
        fs::write(&settings, lines).unwrap();
        let command = [program.as_str(), "-d", "-c", settings.to_str().unwrap()];
        let mut guard = Guard::start(folder, &command, &[]);
        guard.wait_for("tinyproxy", |_| TcpStream::connect(address).ok());
        Tinyproxy { address, _guard: guard }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}
