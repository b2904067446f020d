//! What the origin's own answers mean: access, its clock, its first byte.

use flatout_engine::Dialect;
use flatout_settings::format_size;

use super::time;
use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::origin_probe::{OriginProbe, ProbedObject};
use crate::exit::Exit;

/// Both stores refuse signatures that are further off (RequestTimeTooSkewed).
const REFUSED_S: u64 = 15 * 60;
/// A clock that runs away this far will run on.
const SKEWED_S: u64 = 60;
/// An origin that takes longer for a request on an open connection, beyond the round trip, is busy or slow.
const SLOW_S: f64 = 0.1;

/// What came of asking. `round_trip_s` is that of the nearest address.
pub fn origin_probe(origin_probe: &OriginProbe, dialect: Dialect, round_trip_s: Option<f64>) -> Vec<Finding> {
    let mut findings = vec![access(origin_probe)];
    findings.extend(
        origin_probe.clock_ahead_s.map(|ahead_s| clock(ahead_s, dialect, origin_probe.outcome.is_ok())),
    );
    if let Ok(Some(object)) = &origin_probe.outcome {
        findings.extend(first_byte(object, round_trip_s));
    }
    findings
}

fn access(origin_probe: &OriginProbe) -> Finding {
    let keys = |count| if count == 1 { "1 key".to_owned() } else { format!("{count} keys") };
    let listed =
        origin_probe.listed.map(|count| format!("{} on the first page; ", keys(count))).unwrap_or_default();
    match &origin_probe.outcome {
        Ok(Some(object)) => {
            let size = object.bytes.map_or("of unknown size".to_owned(), format_size);
            Finding::good("access", format!("{} allowed", origin_probe.asked))
                .details(vec![format!("{listed}{}, {size}", object.location)])
                .fact("asked", Some(origin_probe.asked.clone().into()))
                .fact("object", Some(object.location.to_string().into()))
                .fact("bytes", object.bytes.map(Into::into))
        }
        Ok(None) => Finding::note("access", format!("{} allowed", origin_probe.asked))
            .details(vec![format!("{listed}none that can be read")])
            .means("there is nothing to measure with")
            .advise("name an object, or a prefix that has some")
            .fact("asked", Some(origin_probe.asked.clone().into())),
        Err(failure) => {
            let finding = Finding::bad("access", failure.message.clone())
                .means("nothing can be fetched")
                .ending(failure.exit.max(Exit::Failed))
                .fact("asked", Some(origin_probe.asked.clone().into()))
                .fact("kind", Some(failure.kind.clone().into()));
            match &failure.hint {
                Some(hint) => finding.advise(hint.clone()),
                None => finding.advise("flatout stat and flatout ls show what the origin says"),
            }
        }
    }
}

/// With `works`, the origin has answered as it should all the same: what it serves needs no signature.
fn clock(ahead_s: i64, dialect: Dialect, works: bool) -> Finding {
    let seconds = ahead_s.unsigned_abs();
    // What the origin is ahead, this machine is behind.
    let direction = if ahead_s > 0 { "behind" } else { "ahead of" };
    let found = match seconds {
        0..=2 => "agrees with the origin's".to_owned(),
        3..=119 => format!("{seconds} s {direction} the origin's"),
        120..=7_199 => format!("{} min {direction} the origin's", seconds / 60),
        _ => format!("{} h {direction} the origin's", seconds / 3_600),
    };
    let set = "set the clock and keep it set: chrony or systemd-timesyncd";
    let finding = match (seconds, dialect) {
        (0..=SKEWED_S, _) => Finding::good("clock", found),
        (_, Dialect::Plain) => Finding::note("clock", found)
            .means("nothing is signed here; requests to buckets may be refused for it")
            .advise(set),
        (seconds, _) if seconds <= REFUSED_S || works => {
            Finding::note("clock", found).means("signatures are refused from 15 minutes on").advise(set)
        }
        _ => Finding::bad("clock", found)
            .means("signatures that are 15 minutes off are refused")
            .advise(set)
            .ending(Exit::Refused),
    };
    finding.fact("ahead_s", Some((-ahead_s).into()))
}

fn first_byte(object: &ProbedObject, round_trip_s: Option<f64>) -> Option<Finding> {
    let (cold_s, warm_s) = (object.cold_s?, object.warm_s);
    let warm = warm_s.map_or(String::new(), |warm_s| format!(", {} on an open one", time(warm_s)));
    let found = format!("{} on a new connection{warm}", time(cold_s));
    let finding = match warm_s.unwrap_or_default() - round_trip_s.unwrap_or_default() > SLOW_S {
        true => Finding::note("first byte", found)
            .means("the origin itself takes that long: small objects and small parts wait most of their time")
            .advise("larger parts (--part-size) and more at once (--parallel)"),
        false => Finding::good("first byte", found),
    };
    Some(
        finding
            .fact("cold_ms", Some((cold_s * 1e3).into()))
            .fact("warm_ms", warm_s.map(|warm_s| (warm_s * 1e3).into())),
    )
}

#[cfg(test)]
mod tests {
    use flatout_wire::location::Location;

    use super::*;
    use crate::commands::doctor::finding::Level::{self, Bad, Good, Note};
    use crate::failure::Failure;

    fn of(clock_ahead_s: Option<i64>, warm_s: f64) -> OriginProbe {
        let location = Location::parse("s3://bucket/key").unwrap();
        let object = ProbedObject {
            location,
            bytes: Some(4 << 30),
            cold_s: Some(warm_s * 2.0),
            warm_s: Some(warm_s),
            serves_ranges: true,
        };
        OriginProbe {
            asked: "read of s3://bucket/key".into(),
            outcome: Ok(Some(object)),
            listed: None,
            clock_ahead_s,
        }
    }

    #[track_caller]
    fn check(facts: &OriginProbe, dialect: Dialect, topic: &str, level: Level, exit: Exit, says: &[&str]) {
        let findings = origin_probe(facts, dialect, Some(0.001));
        let finding = findings.iter().find(|finding| finding.topic == topic).expect(topic);
        assert_eq!((finding.level, finding.exit), (level, exit), "{finding:?}");
        for part in says {
            assert!(format!("{finding:?}").contains(part), "{finding:?} lacks {part}");
        }
        assert_eq!(finding.advice.is_some(), level != Good, "{finding:?}");
    }

    #[test]
    fn clocks() {
        let check = |ahead_s, dialect, level, exit, says: &str| {
            check(&of(Some(ahead_s), 0.01), dialect, "clock", level, exit, &[says]);
        };
        check(0, Dialect::S3, Good, Exit::Clean, "agrees");
        check(-2, Dialect::S3, Good, Exit::Clean, "agrees");
        check(60, Dialect::S3, Good, Exit::Clean, "60 s behind");
        check(-61, Dialect::Oss, Note, Exit::Clean, "61 s ahead");
        check(900, Dialect::S3, Note, Exit::Clean, "15 min behind");
        check(901, Dialect::S3, Note, Exit::Clean, "15 min behind");
        check(-36_000, Dialect::Plain, Note, Exit::Clean, "nothing is signed");
        for (ahead_s, dialect, says) in
            [(901, Dialect::S3, "15 min behind"), (-36_000, Dialect::Oss, "10 h ahead")]
        {
            let outcome = Err(Failure::usage("access denied"));
            let refused = OriginProbe { outcome, ..of(Some(ahead_s), 0.01) };
            self::check(&refused, dialect, "clock", Bad, Exit::Refused, &[says]);
        }
        assert_eq!(origin_probe(&of(None, 0.01), Dialect::S3, None).len(), 2, "no date, no finding");
    }

    #[test]
    fn access_and_first_bytes() {
        check(
            &of(None, 0.01),
            Dialect::S3,
            "access",
            Good,
            Exit::Clean,
            &["read of s3://bucket/key allowed", "4GiB"],
        );
        check(
            &of(None, 0.01),
            Dialect::S3,
            "first byte",
            Good,
            Exit::Clean,
            &["20 ms on a new", "10 ms on an open"],
        );
        check(&of(None, 0.3), Dialect::S3, "first byte", Note, Exit::Clean, &["--part-size"]);
        let empty = OriginProbe { outcome: Ok(None), listed: Some(0), ..of(None, 0.01) };
        check(&empty, Dialect::S3, "access", Note, Exit::Clean, &["0 keys", "nothing to measure"]);
        let denied = Failure {
            exit: Exit::Refused,
            kind: "denied".into(),
            ..Failure::usage("read: x: access denied")
        };
        let denied = OriginProbe { outcome: Err(denied), ..of(None, 0.01) };
        check(&denied, Dialect::S3, "access", Bad, Exit::Refused, &["access denied"]);
    }
}
