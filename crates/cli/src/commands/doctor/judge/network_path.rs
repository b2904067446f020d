//! What the path to an origin means: its name, what is spoken on it, its addresses and the interface that
//! leads there.

use std::net::IpAddr;

use flatout_engine::{Survey, Surveyed};
use flatout_wire::endpoint::Scheme;
use flatout_wire::oss::EndpointKind;
use serde_json::json;

use super::{CONNECTION_BYTES_PER_S, speed, time};
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::machine::Machine;
use crate::commands::doctor::network_path::{NetworkPath, median};
use crate::commands::doctor::nic::Nic;
use crate::exit::Exit;
use crate::failure::Failure;

/// A round trip within a region is a millisecond or two; between neighbouring regions ten.
const NEAR_S: f64 = 0.004;
/// From here on few connections bring little.
const FAR_S: f64 = 0.020;
/// A look-up that takes longer is felt at the start of each job.
const SLOW_LOOK_UP_S: f64 = 0.5;
/// Below this, one core takes packets of any size as fast as they come.
const FAST_MBIT: u64 = 10_000;
/// Addresses further apart than this are not in the same place.
const SPREAD: f64 = 3.0;

/// Everything up to the first request. `parallel` is how many connections there are to be.
pub fn network_path(path: &NetworkPath, machine: &Machine, parallel: Option<u32>) -> Vec<Finding> {
    let mut findings = vec![endpoint(path), scheme(path, machine)];
    findings.extend(path.way.proxy.as_ref().map(|proxy| {
        Finding::note("proxy", proxy.to_string())
            .means("every byte passes through it: its link and its cores are the limit")
            .advise(format!(
                "name {} in --no-proxy or NO_PROXY, if it can be reached without",
                path.way.endpoint.host
            ))
            .fact("proxy", Some(proxy.to_string().into()))
    }));
    match &path.survey {
        None => {}
        Some(Err(failure)) => findings.push(unresolved(failure)),
        Some(Ok(survey)) => {
            findings.push(addresses(path, survey));
            findings.extend(round_trips(path, survey, machine, parallel));
            findings.extend(handshakes(survey, machine));
        }
    }
    findings.extend(path.nic.as_ref().map(|nic| interface(nic, parallel)));
    findings
}

fn is_near(path: &NetworkPath) -> Option<bool> {
    path.round_trip_s().map(|seconds| seconds < NEAR_S)
}

fn endpoint(path: &NetworkPath) -> Finding {
    let found = path.way.endpoint.to_string();
    let Some(oss) = &path.oss else {
        return Finding::good("endpoint", found.clone()).fact("endpoint", Some(found.into()));
    };
    let finding = match (oss.kind, &oss.internal) {
        (EndpointKind::Public, Some(internal)) => {
            let here = match is_near(path) {
                Some(true) => format!("this machine seems to be in or near {}", oss.region),
                _ => format!("if this machine is Alibaba Cloud's in {}", oss.region),
            };
            Finding::note("endpoint", found.clone())
                .means("the public one: a narrower road, and what is read over it is paid for")
                .advise(format!("{here}: --oss-endpoint {internal}"))
                .fact("internal", Some(internal.clone().into()))
        }
        (EndpointKind::Accelerate, _) => Finding::note("endpoint", found.clone())
            .means("acceleration is for the far side of the world, and paid for")
            .advise(format!(
                "within {} use its own endpoint: --oss-endpoint oss-{}-internal.aliyuncs.com",
                oss.region, oss.region
            )),
        (EndpointKind::Internal, _) => Finding::good("endpoint", found.clone())
            .means("the internal one: the fastest, and free of charge"),
        _ => Finding::good("endpoint", found.clone()),
    };
    finding.fact("endpoint", Some(found.into())).fact("region", Some(oss.region.clone().into()))
}

fn scheme(path: &NetworkPath, machine: &Machine) -> Finding {
    let endpoint = &path.way.endpoint;
    let internal = path.oss.as_ref().is_some_and(|oss| oss.kind == EndpointKind::Internal);
    let at_home = endpoint.is_loopback() || endpoint.host.parse().is_ok_and(is_private) || internal;
    let finding = match (endpoint.scheme, at_home) {
        (Scheme::Http, true) => Finding::good("scheme", "http").means("no TLS to pay for"),
        (Scheme::Http, false) => Finding::note("scheme", "http")
            .means("fast, and on its way everybody can read it and change it")
            .advise("https:// wherever the network is not your own"),
        (Scheme::Https, _) if internal && machine.usable_cores() <= 4.0 => Finding::note("scheme", "https")
            .means("TLS costs about as much CPU again as the transfer itself, and here there are few cores")
            .advise(format!("within the private network: --oss-endpoint http://{}", path.oss_host())),
        (Scheme::Https, _) => {
            Finding::good("scheme", "https").means("about twice the CPU of http for the same bytes")
        }
    };
    finding.fact("scheme", Some(endpoint.scheme.name().into()))
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private() || address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

fn unresolved(failure: &Failure) -> Finding {
    let finding = Finding::bad("addresses", failure.message.clone())
        .means("without an address there is no connection")
        .ending(failure.exit.max(Exit::Failed));
    match &failure.hint {
        Some(hint) => finding.advise(hint.clone()),
        None => finding,
    }
}

fn addresses(path: &NetworkPath, survey: &Survey) -> Finding {
    let (all, dead) =
        (&survey.addresses, survey.addresses.iter().filter(|one| one.failure.is_some()).count());
    let nearest = path.way.nearest();
    let literal = nearest.is_ip();
    let found = match (all.len(), dead) {
        (1, 0) if literal => "1, as written".to_owned(),
        (count, 0) => format!("{count}, looked up in {}", time(survey.resolve_s)),
        (count, dead) => format!("{count}, of which {dead} cannot be talked to"),
    };
    let reason = all.iter().find_map(|surveyed| surveyed.failure.as_ref());
    let finding = match (reason, all.len() - dead) {
        (Some(reason), 0) => {
            let failure = Failure::from(reason);
            let advice = failure.hint.unwrap_or_else(|| {
                "check the endpoint, the firewall and the proxy, and that the origin is running".into()
            });
            Finding::bad("addresses", found)
                .means("nothing can be fetched")
                .advise(advice)
                .ending(failure.exit)
        }
        (Some(_), _) => Finding::note("addresses", found)
            .means("connections that are tried there lose time, up to --connect-timeout")
            .advise("leave them out: --resolve HOST:ADDRESS,ADDRESS with those that answer"),
        (None, 1) if !literal && !nearest.is_loopback() => Finding::note("addresses", found)
            .means("all connections end at one server or balancer")
            .advise("if it has more addresses, name them: --resolve HOST:ADDRESS,ADDRESS"),
        (None, _) if survey.resolve_s > SLOW_LOOK_UP_S => Finding::note("addresses", found)
            .means("each job begins with that wait")
            .advise("a resolver nearby, or a cache on this machine (systemd-resolved, nscd)"),
        (None, _) => Finding::good("addresses", found),
    };
    let table: Vec<_> = all.iter().map(fact).collect();
    finding
        .details(all.iter().map(line).collect())
        .fact("resolve_s", Some(survey.resolve_s.into()))
        .fact("addresses", Some(table.into()))
}

/// `10.0.0.7:443  connect 0.21 ms / 0.25 ms / 0.40 ms, TLS 1.10 ms`: the shortest, the median and the
/// longest.
fn line(surveyed: &Surveyed) -> String {
    let address = surveyed.address;
    if let Some(failure) = &surveyed.failure {
        return format!("{address}  {}", failure.cause());
    }
    let connects = spread(&surveyed.connects_s)
        .map_or(String::new(), |spread| format!("  connect {}", spread.map(time).join(" / ")));
    let tls =
        surveyed.handshake.as_ref().map_or(String::new(), |shaken| format!(", TLS {}", time(shaken.seconds)));
    format!("{address}{connects}{tls}")
}

fn fact(surveyed: &Surveyed) -> serde_json::Value {
    let spread = spread(&surveyed.connects_s);
    let ms = |at: usize| spread.map(|values| values[at] * 1e3);
    json!({
        "address": surveyed.address.to_string(),
        "connect_ms": { "min": ms(0), "median": ms(1), "max": ms(2) },
        "handshake_ms": surveyed.handshake.as_ref().map(|shaken| shaken.seconds * 1e3),
        "error": surveyed.failure.as_ref().map(ToString::to_string),
    })
}

/// Least, middle and most.
fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some([least, median(values)?, most])
}

fn round_trips(
    path: &NetworkPath,
    survey: &Survey,
    machine: &Machine,
    parallel: Option<u32>,
) -> Option<Finding> {
    let medians: Vec<f64> =
        survey.addresses.iter().filter_map(|surveyed| median(&surveyed.connects_s)).collect();
    let [least, middle, most] = spread(&medians)?;
    let found = match medians.len() {
        1 => format!("{}, the median", time(middle)),
        _ => format!("{} to the nearest address, {} to the farthest", time(least), time(most)),
    };
    // The sender sees half of the buffer as its window.
    let window_bytes = machine.receive_bytes.unwrap_or(u64::MAX / 2) as f64 / 2.0;
    let by_window = window_bytes / least;
    let finding = if by_window < CONNECTION_BYTES_PER_S {
        Finding::note("round trip", found)
            .means(format!(
                "with the receive buffer that is allowed a connection brings at most {}",
                speed(by_window * 8e-9)
            ))
            .advise(
                "as root: sysctl -w net.ipv4.tcp_rmem=\"4096 131072 33554432\"; until then more --parallel, or auto",
            )
    } else if least > FAR_S {
        Finding::note("round trip", found)
            .means("far: each connection takes long to get fast, and each request waits that long")
            .advise(match parallel {
                None => "a bucket or endpoint nearer by".to_owned(),
                Some(parallel) => format!(
                    "a bucket or endpoint nearer by, or more at once: --parallel {}, or auto",
                    parallel.saturating_mul(4).min(4_096)
                ),
            })
    } else if medians.len() > 1 && most > least * SPREAD && most > NEAR_S {
        Finding::note("round trip", found)
            .means("some addresses are elsewhere: connections to them are the slow ones")
            .advise("name the near ones: --resolve HOST:ADDRESS,ADDRESS")
    } else {
        Finding::good("round trip", found)
    };
    let through = path.way.proxy.is_some();
    let finding = if through { finding.fact("to", Some("proxy".into())) } else { finding };
    Some(
        finding.fact("nearest_ms", Some((least * 1e3).into())).fact("farthest_ms", Some((most * 1e3).into())),
    )
}

fn handshakes(survey: &Survey, machine: &Machine) -> Option<Finding> {
    let shaken: Vec<_> = survey.addresses.iter().filter_map(|surveyed| surveyed.handshake.as_ref()).collect();
    let first = shaken.first()?;
    let seconds: Vec<f64> = shaken.iter().map(|shaken| shaken.seconds).collect();
    let found = format!("{}, {}, handshake {}", first.version, first.cipher, time(median(&seconds)?));
    let finding = if first.version != "TLS 1.3" {
        Finding::note("TLS", found)
            .means("the handshake of TLS 1.2 takes a round trip more for every new connection")
            .advise("switch TLS 1.3 on at the origin, if it is yours")
    } else if first.cipher.contains("CHACHA20") && machine.has_aes == Some(true) {
        Finding::note("TLS", found)
            .means("the origin chose ChaCha20, which costs several times as much here as AES-GCM")
            .advise("have the origin follow the client's order of ciphers, if it is yours")
    } else {
        Finding::good("TLS", found)
    };
    Some(
        finding
            .fact("version", Some(first.version.clone().into()))
            .fact("cipher", Some(first.cipher.clone().into()))
            .fact("handshake_ms", median(&seconds).map(|seconds| (seconds * 1e3).into())),
    )
}

fn interface(nic: &Nic, parallel: Option<u32>) -> Finding {
    let mtu = nic.mtu.map_or(String::new(), |mtu| format!(", MTU {mtu}"));
    let link = match nic.mbit_per_s {
        Some(mbit) => speed(mbit as f64 / 1e3),
        None => "speed not told".into(),
    };
    let driver = nic.driver.as_deref().map_or(String::new(), |driver| format!(" ({driver})"));
    let wanted = nic.mbit_per_s.map(|mbit| mbit as f64 * 125e3 / CONNECTION_BYTES_PER_S);
    let finding = if nic.is_loopback {
        Finding::good("interface", format!("{}{mtu}", nic.name))
            .means("this machine itself: only its cores count")
    } else if let (Some(wanted), Some(parallel)) = (wanted, parallel)
        && wanted > f64::from(parallel) * 2.0
    {
        let more = (wanted.ceil() as u32).next_multiple_of(8).min(4_096);
        Finding::note("interface", format!("{}{driver}, {link}{mtu}", nic.name))
            .means(format!(
                "object stores give a connection about {}: {parallel} of them do not fill it",
                speed(CONNECTION_BYTES_PER_S * 8e-9)
            ))
            .advise(format!("--parallel {more}, or auto"))
    } else if nic.mtu.is_some_and(|mtu| mtu <= 1_500) && nic.mbit_per_s.is_none_or(|mbit| mbit >= FAST_MBIT) {
        let means =
            "six packets where a jumbo frame of 9000 would be one; inside a cloud's network that costs CPU";
        Finding::note("interface", format!("{}{driver}, {link}{mtu}", nic.name))
            .means(means)
            .advise(format!("where the network carries jumbo frames (8500 at Alibaba Cloud, 9001 at AWS; elsewhere connections hang), as root: ip link set {} mtu 8500", nic.name))
    } else {
        let unknown = "virtual machines often have no figure: see the instance type's";
        let finding = Finding::good("interface", format!("{}{driver}, {link}{mtu}", nic.name));
        if nic.mbit_per_s.is_none() { finding.means(unknown) } else { finding }
    };
    finding
        .fact("name", Some(nic.name.clone().into()))
        .fact("mtu", nic.mtu.map(Into::into))
        .fact("mbit_per_s", nic.mbit_per_s.map(Into::into))
        .fact("driver", nic.driver.clone().map(Into::into))
}

impl NetworkPath {
    /// The endpoint's host as the setting has it, without a bucket before it.
    fn oss_host(&self) -> &str {
        let host = self.way.endpoint.host.as_str();
        let labels =
            host.split('.').position(|label| label.starts_with("oss-") || label.ends_with("-internal"));
        let skipped: usize = host.split('.').take(labels.unwrap_or(0)).map(|label| label.len() + 1).sum();
        &host[skipped..]
    }
}

#[cfg(test)]
mod tests {
    use flatout_engine::{Dialect, Error, ErrorKind, Handshake, Way};
    use flatout_wire::endpoint::Endpoint;

    use super::*;
    use crate::commands::doctor::finding::Level::{self, Bad, Good, Note};
    use crate::commands::doctor::network_path::OssName;

    fn surveyed(address: &str, ms: f64) -> Surveyed {
        let address = address.parse().unwrap();
        Surveyed { address, connects_s: vec![ms / 1e3; 3], handshake: None, failure: None }
    }

    fn dead(address: &str) -> Surveyed {
        let failure = Error::new(ErrorKind::Timeout, "cannot connect: timed out");
        Surveyed { connects_s: Vec::new(), failure: Some(failure), ..surveyed(address, 1.0) }
    }

    fn to(url: &str, addresses: Vec<Surveyed>) -> NetworkPath {
        let (endpoint, _) = Endpoint::parse(url).unwrap();
        NetworkPath {
            dialect: Dialect::S3,
            way: Way { endpoint, proxy: None },
            oss: None,
            survey: Some(Ok(Survey { resolve_s: 0.001, addresses })),
            nic: None,
        }
    }

    fn machine() -> Machine {
        Machine {
            cores: 4,
            allowed_cores: 4,
            has_aes: Some(true),
            receive_bytes: Some(6 << 20),
            ..Machine::default()
        }
    }

    #[track_caller]
    fn check(facts: &NetworkPath, topic: &str, level: Level, says: &[&str]) -> Finding {
        let findings = network_path(facts, &machine(), Some(8));
        let finding = findings.iter().find(|finding| finding.topic == topic).expect(topic);
        assert_eq!(finding.level, level, "{finding:?}");
        for part in says {
            assert!(format!("{finding:?}").contains(part), "{finding:?} lacks {part}");
        }
        assert_eq!(finding.advice.is_some(), level != Good, "{finding:?}");
        finding.clone()
    }

    #[test]
    fn addresses_dead_and_alive() {
        let (one, two) = ("10.0.0.1:443", "10.0.0.2:443");
        let several = to("https://h", vec![surveyed(one, 0.5), surveyed(two, 0.6)]);
        check(
            &several,
            "addresses",
            Good,
            &["2, looked up in 1.00 ms", "10.0.0.1:443  connect 0.50 ms / 0.50 ms / 0.50 ms"],
        );
        let single = to("https://h", vec![surveyed(one, 0.5)]);
        check(&single, "addresses", Note, &["one server", "--resolve"]);
        check(&to("https://10.0.0.1", vec![surveyed(one, 0.5)]), "addresses", Good, &["as written"]);
        check(&to("http://localhost", vec![surveyed(one, 0.5)]), "addresses", Good, &[]);
        let half = to("https://h", vec![surveyed(one, 0.5), dead(two)]);
        check(&half, "addresses", Note, &["2, of which 1", "10.0.0.2:443  cannot connect: timed out"]);
        let gone = check(
            &to("https://h", vec![dead(one), dead(two)]),
            "addresses",
            Bad,
            &["nothing can be fetched"],
        );
        assert_eq!((gone.exit, gone.facts["addresses"][0]["error"].is_string()), (Exit::Failed, true));
        let slow = NetworkPath {
            survey: Some(Ok(Survey {
                resolve_s: 2.0,
                addresses: vec![surveyed(one, 0.5), surveyed(two, 0.5)],
            })),
            ..to("https://h", vec![])
        };
        check(&slow, "addresses", Note, &["looked up in 2.0 s", "resolver"]);
        let unknown =
            Failure::from(Error::new(ErrorKind::Network, "cannot resolve h").with_hint("check the spelling"));
        check(
            &NetworkPath { survey: Some(Err(unknown)), ..to("https://h", vec![]) },
            "addresses",
            Bad,
            &["cannot resolve h", "spelling"],
        );
    }

    #[test]
    fn round_trips_near_far_and_apart() {
        let (one, two) = ("10.0.0.1:443", "10.0.0.2:443");
        check(&to("https://h", vec![surveyed(one, 0.5)]), "round trip", Good, &["0.50 ms"]);
        check(&to("https://h", vec![surveyed(one, 25.0)]), "round trip", Note, &["far", "--parallel 32"]);
        // 3 MiB each 150 ms are 21 MB/s.
        check(&to("https://h", vec![surveyed(one, 150.0)]), "round trip", Note, &["0.2 Gbit/s", "tcp_rmem"]);
        let apart = to("https://h", vec![surveyed(one, 1.0), surveyed(two, 9.0)]);
        check(
            &apart,
            "round trip",
            Note,
            &["1.00 ms to the nearest", "9.00 ms to the farthest", "--resolve"],
        );
    }

    #[test]
    fn oss_endpoints_inside_and_outside() {
        let oss = |host: &str, kind, ms| {
            let internal =
                (kind == EndpointKind::Public).then(|| "oss-cn-x-internal.aliyuncs.com".to_owned());
            let oss = Some(OssName { kind, region: "cn-x".into(), internal });
            NetworkPath { dialect: Dialect::Oss, oss, ..to(host, vec![surveyed("10.0.0.1:443", ms)]) }
        };
        let (public, internal) = ("https://b.oss-cn-x.aliyuncs.com", "b.oss-cn-x-internal.aliyuncs.com");
        check(
            &oss(public, EndpointKind::Public, 1.0),
            "endpoint",
            Note,
            &["seems to be", "oss-cn-x-internal.aliyuncs.com"],
        );
        check(&oss(public, EndpointKind::Public, 30.0), "endpoint", Note, &["if this machine is"]);
        check(
            &oss("https://oss-accelerate.aliyuncs.com", EndpointKind::Accelerate, 1.0),
            "endpoint",
            Note,
            &["oss-cn-x-internal"],
        );
        let https = oss(&format!("https://{internal}"), EndpointKind::Internal, 1.0);
        check(&https, "endpoint", Good, &["free of charge"]);
        check(&https, "scheme", Note, &["--oss-endpoint http://oss-cn-x-internal.aliyuncs.com"]);
        check(&oss(&format!("http://{internal}"), EndpointKind::Internal, 1.0), "scheme", Good, &[]);
        check(&oss("https://gateway", EndpointKind::Custom, 1.0), "endpoint", Good, &[]);
    }

    #[test]
    fn what_is_spoken() {
        check(&to("http://10.1.2.3", vec![]), "scheme", Good, &["no TLS"]);
        check(&to("http://[fd00::1]", vec![]), "scheme", Good, &["no TLS"]);
        check(&to("http://example.com", vec![]), "scheme", Note, &["read it and change it"]);
        check(&to("https://example.com", vec![]), "scheme", Good, &["twice the CPU"]);
        let with = |version: &str, cipher: &str| {
            let handshake =
                Some(Handshake { seconds: 0.002, version: version.into(), cipher: cipher.into() });
            to("https://h", vec![Surveyed { handshake, ..surveyed("10.0.0.1:443", 1.0) }])
        };
        check(&with("TLS 1.3", "TLS13_AES_128_GCM_SHA256"), "TLS", Good, &["handshake 2.00 ms"]);
        check(&with("TLS 1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"), "TLS", Note, &["round trip more"]);
        check(&with("TLS 1.3", "TLS13_CHACHA20_POLY1305_SHA256"), "TLS", Note, &["ChaCha20"]);
        let mut proxied = to("https://h", vec![]);
        proxied.way.proxy = Some(Endpoint::parse("http://proxy:3128").unwrap().0);
        check(&proxied, "proxy", Note, &["http://proxy:3128", "name h in --no-proxy"]);
    }

    #[test]
    fn interfaces() {
        let nic = |mtu, mbit_per_s, is_loopback| {
            let nic = Nic { name: "eth0".into(), mtu: Some(mtu), mbit_per_s, driver: None, is_loopback };
            NetworkPath { nic: Some(nic), ..to("https://h", vec![]) }
        };
        check(&nic(65_536, None, true), "interface", Good, &["only its cores"]);
        check(&nic(9_001, Some(10_000), false), "interface", Good, &["10 Gbit/s"]);
        check(&nic(9_001, Some(100_000), false), "interface", Note, &["100 Gbit/s", "--parallel 144"]);
        check(&nic(1_500, Some(1_000), false), "interface", Good, &["MTU 1500"]);
        check(
            &nic(1_500, None, false),
            "interface",
            Note,
            &["MTU 1500", "where the network carries jumbo frames", "ip link set eth0 mtu 8500"],
        );
        check(&nic(8_500, None, false), "interface", Good, &["speed not told", "instance type"]);
    }
}
