//! The addresses of this machine, by the interfaces that have them; and those that connections are bound to.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::error::{Error, ErrorKind, SETTINGS};

/// Every address of this machine with the name of its interface; an interface with several is named as often.
///
/// # Errors
/// What the system refuses.
pub fn interfaces() -> io::Result<Vec<(String, IpAddr)>> {
    let found = if_addrs::get_if_addrs()?;
    Ok(found.into_iter().map(|one| (one.name.clone(), one.ip())).collect())
}

/// The addresses of this machine that connections are spread over; without any the kernel chooses.
#[derive(Debug, Default)]
pub(crate) struct Binds {
    addresses: Vec<IpAddr>,
    turn: AtomicUsize,
}

impl Binds {
    /// From the values of `--bind`, each an address of this machine or the name of one of its interfaces.
    pub(crate) fn new(wanted: &[String]) -> Result<Binds, Error> {
        let mut addresses = Vec::new();
        for wanted in wanted {
            addresses.extend(resolve(wanted).map_err(|error| error.during(SETTINGS, "bind"))?);
        }
        Ok(Binds { addresses, turn: AtomicUsize::new(0) })
    }

    /// The one whose turn it is among those that can reach `remote`, which are those of its family; `None`
    /// where the kernel is to choose.
    pub(crate) fn next(&self, remote: SocketAddr) -> io::Result<Option<IpAddr>> {
        let can_reach = |local: &&IpAddr| local.is_ipv4() == remote.is_ipv4();
        let local: Vec<_> = self.addresses.iter().filter(can_reach).collect();
        if local.is_empty() && !self.addresses.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "no address to bind to is of its family",
            ));
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed).checked_rem(local.len());
        Ok(turn.map(|turn| *local[turn]))
    }
}

fn resolve(wanted: &str) -> Result<Vec<IpAddr>, Error> {
    if let Ok(address) = wanted.trim_matches(['[', ']']).parse::<IpAddr>() {
        // The kernel knows best: this fails for what is not assigned here.
        return match UdpSocket::bind((address, 0)) {
            Ok(_) => Ok(vec![address]),
            Err(refused) => {
                let cause = format!(
                    "'{wanted}' is not an address of this machine: {}",
                    crate::base::error::plain(&refused)
                );
                Err(Error::new(ErrorKind::Usage, cause).with_hint("`ip address` shows those that are"))
            }
        };
    }
    let known = interfaces().map_err(|refused| Error::local("cannot list the interfaces", refused))?;
    let of_it: Vec<_> =
        known.iter().filter(|(name, _)| name == wanted).map(|(_, address)| *address).collect();
    // A link-local address leads nowhere without a zone, and object stores are not on the link.
    let usable: Vec<_> = of_it.iter().copied().filter(|address| !is_link_local(*address)).collect();
    if usable.is_empty() {
        let cause = match of_it.is_empty() {
            true => format!("'{wanted}' is neither an address nor an interface that has one"),
            false => format!("the interface '{wanted}' has link-local addresses only"),
        };
        let mut names: Vec<_> = known.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        return Err(Error::new(ErrorKind::Usage, cause)
            .with_hint(format!("interfaces with addresses are {}", names.join(", "))));
    }
    Ok(usable)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binds(wanted: &[&str]) -> Result<Binds, Error> {
        Binds::new(&wanted.iter().map(|wanted| (*wanted).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn addresses_take_turns_within_their_family() {
        let binds = binds(&["127.0.0.1", "127.0.0.2"]).expect("loopback has them all");
        let remote: SocketAddr = ([127, 0, 0, 9], 80).into();
        let next = || binds.next(remote).expect("one of its family").expect("one").to_string();
        assert_eq!([next(), next(), next()], ["127.0.0.1", "127.0.0.2", "127.0.0.1"]);
        let other: SocketAddr = "[::1]:80".parse().expect("an address");
        assert_eq!(binds.next(other).map_err(|refused| refused.kind()), Err(io::ErrorKind::AddrNotAvailable));
        assert_eq!(Binds::default().next(other).expect("the kernel's choice"), None);
    }

    #[test]
    fn an_interface_stands_for_its_addresses() {
        let loopback = interfaces().expect("a list").into_iter().find(|(_, address)| address.is_loopback());
        let (name, address) = loopback.expect("every machine has one");
        assert!(binds(&[&name]).expect("an interface").addresses.contains(&address));
    }

    #[test]
    fn what_is_not_of_this_machine_is_refused() {
        for (wanted, why) in [
            ("192.0.2.7", "not an address of this machine"),
            ("2001:db8::7", "not an address of this machine"),
            ("nowhere0", "neither an address nor an interface"),
            ("", "neither an address nor an interface"),
        ] {
            let error = binds(&[wanted]).expect_err(wanted);
            assert_eq!((error.kind(), error.doing(), error.object()), (ErrorKind::Usage, SETTINGS, "bind"));
            assert!(error.cause().contains(why) && error.hint().is_some(), "{error}");
        }
    }
}
