//! What an outage test needs: an origin, the road to it, and the switch that makes it go away and come back.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use super::between::{Gateway, Tinyproxy};
use super::origin::{MinIo, own_address};
use super::toxiproxy::{Proxied, Toxiproxy};
use crate::minio::{ACCESS_KEY, SECRET_KEY};
use crate::program;

/// How the program reaches the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Road {
    Plain,
    Tls,
    /// Through an HTTP proxy, which asks in the program's place.
    Proxy,
    /// Through an HTTP proxy, by CONNECT.
    ProxyTls,
    /// Through a gateway, which answers when the origin does not.
    Gateway,
}

/// How the origin goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its connections are cut and new ones refused.
    Refused,
    /// Its process is killed, and started again.
    Killed,
    /// Its process is stopped and goes on: it takes connections and answers nothing.
    Silent,
    /// The HTTP proxy on the way cuts connections and refuses new ones.
    ProxyRefused,
    /// The gateway answers this.
    Status(u16),
}

pub struct Lab {
    minio: MinIo,
    /// Before MinIO, or before the HTTP proxy: what is switched off when connections are to be refused.
    proxied: Proxied,
    gateway: Option<Gateway>,
    fault: Fault,
    arguments: Vec<String>,
    _toxiproxy: Toxiproxy,
    _tinyproxy: Option<Tinyproxy>,
}

impl Lab {
    pub fn new(road: Road, fault: Fault) -> Lab {
        let toxiproxy = Toxiproxy::start();
        let front = own_address();
        let minio = MinIo::start(matches!(road, Road::Tls | Road::ProxyTls), &[front]);
        let tinyproxy = matches!(road, Road::Proxy | Road::ProxyTls).then(Tinyproxy::start);
        let behind = match (fault, &tinyproxy) {
            (Fault::ProxyRefused, Some(tinyproxy)) => tinyproxy.address,
            _ => minio.address,
        };
        let proxied = toxiproxy.before(front, behind);
        let gateway = (road == Road::Gateway)
            .then(|| Gateway::before(if fault == Fault::Refused { front } else { minio.address }));
        let origin: SocketAddr = match (&gateway, fault) {
            (Some(gateway), _) => gateway.address,
            (None, Fault::Refused) => front,
            (None, _) => minio.address,
        };
        let mut arguments = vec!["--endpoint-url".to_owned(), minio.url_at(origin)];
        if let Some(authority) = &minio.authority {
            arguments.extend(["--ca-bundle".to_owned(), authority.bundle()]);
        }
        if let Some(tinyproxy) = &tinyproxy {
            let proxy =
                if fault == Fault::ProxyRefused { format!("http://{front}") } else { tinyproxy.url() };
            arguments.extend(["--proxy".to_owned(), proxy]);
        }
        Lab { minio, proxied, gateway, fault, arguments, _toxiproxy: toxiproxy, _tinyproxy: tinyproxy }
    }

    /// The program with this origin and its keys. It runs as a child of the tests, whose end is awaited by
    /// `Run`.
    pub fn flatout(&self, arguments: &[&str]) -> Command {
        let more: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut command = program::flatout(&[arguments, &more].concat());
        command.envs([("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)]);
        command
    }

    /// What says where the origin is.
    pub fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Where the link to the origin can be made slow.
    pub fn link(&self) -> &Proxied {
        &self.proxied
    }

    pub fn go_away(&mut self) {
        match self.fault {
            Fault::Refused | Fault::ProxyRefused => self.proxied.refuse(),
            Fault::Killed => self.minio.kill(),
            Fault::Silent => self.minio.stop(),
            Fault::Status(status) => {
                self.gateway.as_ref().expect("a road with a gateway").refuse_with(status)
            }
        }
    }

    /// When the origin could be reached again: of MinIO when it says that it is ready.
    pub fn come_back(&mut self) -> Instant {
        match self.fault {
            // Before the request, since connections are taken before its answer is read.
            Fault::Refused | Fault::ProxyRefused => {
                let back = Instant::now();
                self.proxied.serve();
                back
            }
            Fault::Killed => {
                self.minio.restart();
                Instant::now()
            }
            Fault::Silent => {
                self.minio.go_on();
                Instant::now()
            }
            Fault::Status(_) => {
                self.gateway.as_ref().expect("a road with a gateway").serve();
                Instant::now()
            }
        }
    }
}
