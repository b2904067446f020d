//! The network interface that leads to an address, and what the kernel tells of it.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

/// An interface. What a virtual machine's does not tell is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    pub name: String,
    pub mtu: Option<u32>,
    pub mbit_per_s: Option<u64>,
    /// `virtio_net`
    pub driver: Option<String>,
    pub is_loopback: bool,
}

/// An address of nobody (RFC 5737): what leads there leads to wherever no other route does.
pub const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

impl Nic {
    /// The one that the kernel would send to `address` by. Nothing is sent.
    ///
    /// # Errors
    /// No route leads there.
    pub fn towards(root: &Path, address: IpAddr) -> io::Result<Option<Nic>> {
        let any: SocketAddr = if address.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        let socket = UdpSocket::bind(any)?;
        // Connecting a datagram socket only chooses the route; the port is that of discard.
        socket.connect((address, 9))?;
        let ours = socket.local_addr()?.ip();
        let mut known = flatout_engine::interfaces()?.into_iter();
        let found = known.find(|(_, address)| *address == ours);
        Ok(found.map(|(name, _)| Nic::look(root, name, ours.is_loopback())))
    }

    fn look(root: &Path, name: String, is_loopback: bool) -> Nic {
        let folder = root.join("sys/class/net").join(&name);
        let number = |file: &str| {
            let text = fs::read_to_string(folder.join(file)).ok()?;
            text.trim().parse::<i64>().ok().filter(|number| *number > 0)
        };
        let driver = fs::read_link(folder.join("device/driver")).ok();
        let speed = if is_told_of_hardware(&folder) { number("speed") } else { None };
        Nic {
            mtu: number("mtu").and_then(|mtu| u32::try_from(mtu).ok()),
            // -1, or an error, where the driver does not know.
            mbit_per_s: speed.and_then(|speed| u64::try_from(speed).ok()),
            driver: driver.and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned())),
            name,
            is_loopback,
        }
    }
}

/// Whether the speed of an interface is that of some device: a bond and a VLAN pass on what theirs say.
/// Others make one up, a veth 10000 and a tun 10, whatever the host has.
fn is_told_of_hardware(folder: &Path) -> bool {
    let is_vlan = || {
        let uevent = fs::read_to_string(folder.join("uevent")).unwrap_or_default();
        uevent.lines().any(|line| line == "DEVTYPE=vlan")
    };
    folder.join("device").exists() || folder.join("bonding").exists() || is_vlan()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_without_a_device_is_made_up() {
        let check = |kind: &str, file: &str, text: &str, expected: Option<u64>| {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("sys/class/net/x0");
            fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
            fs::write(folder.join(file), text).unwrap();
            fs::write(folder.join("speed"), "10000\n").unwrap();
            assert_eq!(Nic::look(root.path(), "x0".into(), false).mbit_per_s, expected, "{kind}");
        };
        check("veth", "uevent", "INTERFACE=x0\nIFINDEX=2\n", None);
        check("tun", "tun_flags", "0x1002\n", None);
        check("hardware", "device/vendor", "0x1d0f\n", Some(10_000));
        check("bond", "bonding/mode", "802.3ad 4\n", Some(10_000));
        check("VLAN", "uevent", "DEVTYPE=vlan\nINTERFACE=x0\n", Some(10_000));
    }

    #[test]
    fn loopback_leads_to_loopback() {
        let nic = Nic::towards(Path::new("/"), Ipv4Addr::LOCALHOST.into()).unwrap().unwrap();
        assert!(nic.is_loopback && nic.mtu.is_some_and(|mtu| mtu >= 1_500), "{nic:?}");
        assert_eq!(nic.mbit_per_s, None);
    }

    #[test]
    fn what_a_driver_does_not_know_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let eth0 = folder.path().join("sys/class/net/eth0");
        fs::create_dir_all(eth0.join("device")).unwrap();
        fs::write(eth0.join("mtu"), "9001\n").unwrap();
        std::os::unix::fs::symlink("../../bus/drivers/ena", eth0.join("device/driver")).unwrap();
        for (speed, expected) in [("-1\n", None), ("100000\n", Some(100_000)), ("", None)] {
            fs::write(eth0.join("speed"), speed).unwrap();
            let nic = Nic::look(folder.path(), "eth0".into(), false);
            assert_eq!(
                (nic.mtu, nic.mbit_per_s, nic.driver.as_deref()),
                (Some(9_001), expected, Some("ena"))
            );
        }
        let gone = Nic::look(folder.path(), "eth1".into(), false);
        assert_eq!((gone.mtu, gone.mbit_per_s, gone.driver), (None, None, None));
    }
}
