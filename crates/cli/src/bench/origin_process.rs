//! The origin's CPU, where the origin is on this machine: whoever listens on the port, found through `/proc`.

use std::fs;
use std::net::SocketAddr;
use std::time::Instant;

use crate::sys;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The kernel counts in ticks of 10 ms: 25 of them are the least that a figure can be made of.
const LEAST_SECONDS: f64 = 0.25;

/// The processes that listen on a port of this machine: nginx has several that share it.
pub struct OriginProcess {
    ids: Vec<u32>,
}

impl OriginProcess {
    /// `None` when the address is another machine's, or the listener cannot be seen (another user's, a
    /// container's).
    pub fn of(address: SocketAddr) -> Option<OriginProcess> {
        if !address.ip().is_loopback() {
            return None;
        }
        let sockets: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| listening(&table, address.port()))
            .map(|inode| format!("socket:[{inode}]"))
            .collect();
        let ids: Vec<u32> = process_ids().filter(|id| holds(*id, &sockets)).collect();
        (!ids.is_empty() && !sockets.is_empty()).then_some(OriginProcess { ids })
    }

    /// Starts to count.
    pub fn watch(self) -> OriginCpu {
        OriginCpu { cpu_seconds: self.cpu_seconds(), start: Instant::now(), origin: self }
    }

    fn cpu_seconds(&self) -> f64 {
        let stats = self.ids.iter().filter_map(|id| fs::read_to_string(format!("/proc/{id}/stat")).ok());
        stats.filter_map(|stat| ticks(&stat)).sum::<u64>() as f64 / sys::ticks_per_second()
    }
}

/// An origin whose CPU is being counted.
pub struct OriginCpu {
    origin: OriginProcess,
    cpu_seconds: f64,
    start: Instant,
}

impl OriginCpu {
    /// CPU seconds per second of wall time: 1.0 is one core all the time. `None` after too short a time to
    /// tell.
    pub fn busy(&self) -> Option<f64> {
        share(self.origin.cpu_seconds() - self.cpu_seconds, self.start.elapsed().as_secs_f64())
    }
}

fn share(cpu_seconds: f64, seconds: f64) -> Option<f64> {
    (seconds >= LEAST_SECONDS).then_some(cpu_seconds / seconds)
}

/// Inodes of the sockets that listen on `port`. A row is `N: ADDRESS:PORT REMOTE STATE … INODE`, the port in
/// hex.
fn listening(table: &str, port: u16) -> Vec<String> {
    let port = format!(":{port:04X}");
    let rows = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.len() > 9 && row[1].ends_with(&port) && row[3] == LISTEN)
        .map(|row| row[9].to_owned())
        .collect()
}

fn process_ids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn holds(id: u32, sockets: &[String]) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten().flatten();
    descriptors
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

/// User and system ticks: fields 14 and 15 of proc(5). Counted behind the name, which may hold spaces and
/// brackets.
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_by_its_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n\
             1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4243 1\n\
             2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4244 1\n";
        assert_eq!(listening(table, 8080), ["4242"]);
    }

    #[test]
    fn ticks_stand_behind_the_name() {
        let stat = "12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 300 40 0 0";
        assert_eq!(ticks(stat), Some(340));
    }

    #[test]
    fn a_run_of_a_few_ticks_had_a_figure() {
        let check = |cpu_seconds, seconds, expected| assert_eq!(share(cpu_seconds, seconds), expected);
        check(0.01, 0.002, None);
        check(0.1, 0.249, None);
        check(0.125, 0.25, Some(0.5));
        check(0.0, 2.0, Some(0.0));
    }

    #[test]
    fn this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = OriginProcess::of(listener.local_addr().unwrap()).expect("our own listener");
        assert!(origin.ids.contains(&std::process::id()));
        assert!(OriginProcess::of("192.0.2.1:80".parse().unwrap()).is_none());
    }
}
