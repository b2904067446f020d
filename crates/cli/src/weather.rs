//! The wind tunnel's flags of `serve`. Faults keep the order in which they were typed: the first that chance
//! chooses counts.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{Command, NonEmptyStringValueParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Error, FromArgMatches};
use flatout_server::{Fault, FaultKind, FaultPlan, Listen, Rates, Series, WriteFault};

use crate::args::{duration, rate, size};

const HEADING: &str = "Wind tunnel";

/// What may go wrong, as typed.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = HEADING)]
pub struct Weather {
    #[command(flatten)]
    faults: Faults,
    /// Let in at most this many requests for objects a second, as in 100/s; tell the others to slow down
    /// (503)
    #[arg(long, value_name = "N/s", value_parser = throttle)]
    throttle: Option<f64>,
    /// Say with those refusals how long OSS held them back: x-oss-qos-delay-time, in ms
    #[arg(long, value_name = "MS", value_parser = milliseconds, requires = "throttle")]
    qos_delay: Option<Duration>,
    /// From the Nth GET of an object on it has other bytes and another ETag
    #[arg(long, value_name = "N", value_parser = nth)]
    replace_after: Option<u64>,
    /// Take each session token for so long after its first use, then call it expired
    #[arg(long, value_name = "AFTER", value_parser = duration)]
    expire_token: Option<Duration>,
    /// Set the origin's clock ahead or back, as in +1h or -20m: its Date, and the times of signatures
    #[arg(long, value_name = "+TIME", value_parser = clock, allow_hyphen_values = true)]
    clock: Option<i64>,
    /// A number always gives the same faults, whatever the timing; start serve anew to repeat a run
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = seed)]
    seed: u64,
    /// Append a line of JSON for each request: what it asked for, its fault, status and bytes
    /// (docs/wind-tunnel.md)
    #[arg(long, value_name = "FILE", value_parser = NonEmptyStringValueParser::new().map(PathBuf::from))]
    log: Option<PathBuf>,
}

impl Weather {
    pub fn fault_plan(&self) -> FaultPlan {
        FaultPlan {
            seed: self.seed,
            faults: self.faults.0.clone(),
            throttle: self.throttle,
            qos_delay: self.qos_delay,
            replace_after: self.replace_after,
            expire_token: self.expire_token,
            clock: self.clock.unwrap_or_default(),
            log: self.log.clone(),
        }
    }
}

/// `--stall`, `--put-reset` and the others that befall one request in P.
#[derive(Clone, Debug, Default)]
struct Faults(Vec<Fault>);

/// What a fault is, by what stands behind its P.
type ReadFault = fn(Option<&str>) -> Result<FaultKind, String>;

/// Name, value and help of each, and how its value is read.
const FAULTS: [(&str, &str, &str, ReadFault); 16] = [
    (
        "stall",
        "P:TIME",
        "In P of the bodies nothing comes for so long, then the rest; P is 0 to 1 or a percentage",
        |rest| Ok(FaultKind::Stall(duration(wanted(rest, "TIME, as in 0.05:30s")?)?)),
    ),
    ("reset", "P", "In the middle of P of the bodies the connection is reset", |rest| {
        alone(rest, FaultKind::Reset)
    }),
    ("truncate", "P", "In the middle of P of the bodies the connection ends in good order", |rest| {
        alone(rest, FaultKind::Truncate)
    }),
    ("slow", "P:RATE", "P of the bodies come at this rate, as in 5%:64KiB/s", |rest| {
        Ok(FaultKind::Slow(rate(wanted(rest, "RATE, as in 5%:64KiB/s")?)?))
    }),
    (
        "error",
        "P:CODE",
        "Refuse P of the GETs, HEADs and listings: InternalError, SlowDown, ...; a bare status as 502",
        |rest| Ok(FaultKind::Error(wanted(rest, "CODE, as in 0.01:InternalError")?.parse()?)),
    ),
    ("wrong-range", "P", "Answer P of the ranges by the one beside it", |rest| {
        alone(rest, FaultKind::WrongRange)
    }),
    ("flip", "P", "One bit of P of the bodies is wrong; checksums stay those of the true bytes", |rest| {
        alone(rest, FaultKind::Flip)
    }),
    ("put-stall", "P:TIME", "Take nothing for so long in P of the bodies that are uploaded", |rest| {
        Ok(FaultKind::Write(WriteFault::Stall(duration(wanted(rest, "TIME, as in 0.05:30s")?)?)))
    }),
    (
        "put-reset",
        "P",
        "In the middle of P of the bodies that are uploaded the connection is reset",
        |rest| alone(rest, FaultKind::Write(WriteFault::Reset)),
    ),
    ("put-slow", "P:RATE", "Take P of the bodies that are uploaded at this rate", |rest| {
        Ok(FaultKind::Write(WriteFault::Slow(rate(wanted(rest, "RATE, as in 5%:64KiB/s")?)?)))
    }),
    ("put-flip", "P", "One bit of P of the bodies that are uploaded arrives wrong", |rest| {
        alone(rest, FaultKind::Write(WriteFault::Flip))
    }),
    (
        "put-error",
        "P:CODE[@STEP]",
        "Refuse P of the requests of uploads; STEP is put, create, part, complete or abort",
        |rest| {
            let rest = wanted(rest, "CODE, as in 0.01:InternalError or 1:AccessDenied@part")?;
            let (code, step) = rest.split_once('@').map_or((rest, None), |(code, step)| (code, Some(step)));
            let step = step.map(str::parse).transpose()?;
            Ok(FaultKind::Write(WriteFault::Error(code.parse()?, step)))
        },
    ),
    (
        "put-early-error",
        "P:CODE",
        "Refuse P of the uploads of objects and parts before their bodies are read",
        |rest| {
            let code = wanted(rest, "CODE, as in 0.01:AccessDenied")?.parse()?;
            Ok(FaultKind::Write(WriteFault::EarlyError(code)))
        },
    ),
    (
        "put-lost",
        "P[:STEP]",
        "Do what P of the requests of uploads ask, and reset the connection in place of the answer",
        |rest| Ok(FaultKind::Write(WriteFault::Lost(rest.map(str::parse).transpose()?))),
    ),
    (
        "put-forgotten",
        "P",
        "Lose P of the answers to CompleteMultipartUpload, then say that there is no such upload",
        |rest| alone(rest, FaultKind::Write(WriteFault::Forgotten)),
    ),
    (
        "put-hidden-error",
        "P:CODE",
        "Answer P of CompleteMultipartUpload with status 200 and a refusal in the body",
        |rest| {
            let code = wanted(rest, "CODE, as in 0.01:InternalError")?.parse()?;
            Ok(FaultKind::Write(WriteFault::HiddenError(code)))
        },
    ),
];

impl Args for Faults {
    fn augment_args(command: Command) -> Command {
        FAULTS.iter().fold(command, |command, (name, value, help, read)| {
            let parser = ValueParser::new(|text: &str| fault(*read, text));
            let flag =
                Arg::new(*name).long(*name).value_name(*value).help(*help).allow_negative_numbers(true);
            command.arg(flag.action(ArgAction::Append).value_parser(parser).help_heading(HEADING))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Faults::augment_args(command)
    }
}

impl FromArgMatches for Faults {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Faults, Error> {
        let mut placed = Vec::new();
        for (name, ..) in FAULTS {
            let faults = matches.get_many::<Fault>(name).into_iter().flatten().copied();
            placed.extend(matches.indices_of(name).into_iter().flatten().zip(faults));
        }
        placed.sort_by_key(|(place, _)| *place);
        Ok(Faults(placed.into_iter().map(|(_, fault)| fault).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Faults::from_arg_matches(matches)?;
        Ok(())
    }
}

fn fault(read: ReadFault, text: &str) -> Result<Fault, String> {
    let (chance, rest) = text.split_once(':').map_or((text, None), |(chance, rest)| (chance, Some(rest)));
    Ok(Fault { kind: read(rest)?, chance: self::chance(chance)? })
}

fn wanted<'a>(rest: Option<&'a str>, example: &str) -> Result<&'a str, String> {
    rest.ok_or_else(|| format!("write P:{example}"))
}

fn alone(rest: Option<&str>, kind: FaultKind) -> Result<FaultKind, String> {
    rest.map_or(Ok(kind), |_| Err("write P alone, as in 0.05 or 5%".to_owned()))
}

/// From 0 to 1, or a percentage.
fn chance(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let chance = number.trim().parse::<f64>().ok().map(|number| number / scale);
    chance
        .filter(|chance| (0.0..=1.0).contains(chance))
        .ok_or_else(|| "P is no chance: write 0 to 1, or 0% to 100%".to_owned())
}

fn throttle(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").and_then(|number| number.parse::<f64>().ok());
    number
        .filter(|number| number.is_finite() && *number > 0.0)
        .ok_or_else(|| "write requests a second, as in 100/s or 0.5/s".to_owned())
}

fn nth(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "write a whole number from 1 on".to_owned())
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "write a whole number from 0 on".to_owned())
}

/// A number of milliseconds, or a duration.
fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().map(Duration::from_millis).or_else(|_| duration(text));
    number.map_err(|_| "write milliseconds, as in 400, or a duration, as in 400ms".to_owned())
}

fn clock(text: &str) -> Result<i64, String> {
    let (ahead, time) = match text.strip_prefix('-') {
        Some(time) => (false, time),
        None => (true, text.strip_prefix('+').unwrap_or(text)),
    };
    let time_s = i64::try_from(duration(time)?.as_secs()).map_err(|_| "too far".to_owned())?;
    Ok(if ahead { time_s } else { -time_s })
}

/// `A`, or `A@5s:B@10s:C`: other rates from these times after the start on.
pub fn rates(text: &str) -> Result<Rates, String> {
    let mut words = text.split('@');
    let mut rates = Rates::from(rate(words.next().unwrap_or_default())?);
    for word in words {
        let (from, then) =
            word.split_once(':').ok_or_else(|| "write RATE@TIME:RATE, as in 64MiB/s@5s:1MiB/s".to_owned())?;
        let from = duration(from)?;
        if rates.then.last().is_some_and(|(before, _)| *before >= from) {
            return Err("write times that go up, as in 64MiB/s@5s:1MiB/s@10s:64MiB/s".to_owned());
        }
        rates.then.push((from, rate(then)?));
    }
    Ok(rates)
}

/// `ADDR:PORT[,rate=RATE][,dead]`
pub fn listen(text: &str) -> Result<Listen, String> {
    let mut words = text.split(',');
    let mut listen = Listen::from(flatout_settings::parse_address(words.next().unwrap_or_default())?);
    for word in words {
        match word.split_once('=') {
            Some(("rate", text)) => listen.rate = Some(rate(text)?),
            None if word == "dead" => listen.dead = true,
            _ => return Err(format!("'{word}' is unknown: write ADDR:PORT,rate=16MiB/s or ADDR:PORT,dead")),
        }
    }
    Ok(listen)
}

/// What `--synthetic` makes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Synthetic {
    /// Bucket, key and size in bytes.
    One(String, String, u64),
    Row(Series),
}

/// `BUCKET/KEY=SIZE`, or `BUCKET/KEY%07d=SIZE*COUNT`.
pub fn synthetic(text: &str) -> Result<Synthetic, String> {
    let wrong = || {
        "write BUCKET/KEY=SIZE, or BUCKET/KEY%07d=SIZE*COUNT for many, as in demo/object=4GiB or 'demo/f-%04d=128KiB*10000'"
            .to_owned()
    };
    let (name, bytes) = text.rsplit_once('=').ok_or_else(wrong)?;
    let (bucket, key) = name
        .split_once('/')
        .filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty())
        .ok_or_else(wrong)?;
    let Some((bytes, count)) = bytes.split_once('*') else {
        return Ok(Synthetic::One(
            bucket.to_owned(),
            key.to_owned(),
            size(bytes).map_err(|why| format!("{why}; {}", wrong()))?,
        ));
    };
    let count = count.parse().map_err(|_| wrong())?;
    Series::new(bucket, key, count, size(bytes)?).map(Synthetic::Row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault_plan(typed: &[&str]) -> Result<FaultPlan, String> {
        let command = Weather::augment_args(Command::new("test").no_binary_name(true));
        let matches = command.try_get_matches_from(typed).map_err(|error| error.to_string())?;
        Ok(Weather::from_arg_matches(&matches).map_err(|error| error.to_string())?.fault_plan())
    }

    #[test]
    fn faults_keep_the_order_in_which_they_are_typed() {
        let typed =
            ["--flip", "1%", "--stall=0.5:30s", "--reset", "0", "--flip=1", "--error", "100%:slowdown"];
        let shown: Vec<String> = fault_plan(&typed).unwrap().faults.iter().map(Fault::to_string).collect();
        assert_eq!(shown, ["flip 0.01", "stall 0.5:30s", "reset 0", "flip 1", "error 1:SlowDown"]);
        let typed = ["--slow", "1:64KiB/s", "--wrong-range", "0.25", "--truncate", "0.125"];
        let shown: Vec<String> = fault_plan(&typed).unwrap().faults.iter().map(Fault::to_string).collect();
        assert_eq!(shown, ["slow 1:65536B/s", "wrong-range 0.25", "truncate 0.125"]);
        let typed = "--put-stall 5%:1s --put-reset 1 --put-slow 1:1KiB/s --put-flip 0 --put-error 1:503 \
             --put-error 0.5:quotaexceeded@part --put-early-error 1:AccessDenied --put-lost 1 --put-lost 1:create \
             --put-forgotten 1 --put-hidden-error 1:500";
        let shown = fault_plan(&typed.split_whitespace().collect::<Vec<_>>()).unwrap().faults;
        let shown: Vec<String> = shown.iter().map(|fault| format!("--{fault}")).collect();
        let again: Vec<&str> = shown.iter().flat_map(|flag| flag.split(' ')).collect();
        assert!(shown.contains(&"--put-error 0.5:QuotaExceeded@part".to_owned()), "{shown:?}");
        let again: Vec<String> =
            fault_plan(&again).unwrap().faults.iter().map(|fault| format!("--{fault}")).collect();
        assert_eq!(again, shown);
    }

    #[test]
    fn the_rest_of_the_weather_is_read() {
        assert!(fault_plan(&[]).unwrap().is_still());
        assert!(fault_plan(&["--seed", "7"]).unwrap().is_still());
        let typed = "--throttle 2.5/s --qos-delay 250 --replace-after 3 --expire-token 10s --clock -1h --seed 9 --log x";
        let expected = FaultPlan {
            seed: 9,
            throttle: Some(2.5),
            qos_delay: Some(Duration::from_millis(250)),
            replace_after: Some(3),
            expire_token: Some(Duration::from_secs(10)),
            clock: -3600,
            log: Some("x".into()),
            ..FaultPlan::default()
        };
        assert_eq!(fault_plan(&typed.split(' ').collect::<Vec<_>>()).unwrap(), expected);
        assert_eq!(fault_plan(&["--clock", "+90s"]).unwrap().clock, 90);
    }

    #[test]
    fn bad_values_say_what_would_be_good() {
        for (typed, said) in [
            ("--reset 1.5", "0 to 1, or 0% to 100%"),
            ("--reset=-0.1", "0 to 1"),
            ("--reset -0.1", "0 to 1"),
            ("--reset NaN", "0 to 1"),
            ("--reset 5%:3", "P alone"),
            ("--stall 0.5", "0.05:30s"),
            ("--stall 0.5:30", "a duration"),
            ("--slow 0.5:30MiB", "16MiB/s"),
            ("--error 1", "InternalError"),
            ("--error 1:SlowDon", "write SlowDown"),
            ("--error 1:200", "400 to 599"),
            ("--put-error 1", "InternalError"),
            ("--put-error 1:503@end", "write put, create, part, complete or abort"),
            ("--put-lost 1:2", "write put, create"),
            ("--put-forgotten 1:2", "P alone"),
            ("--throttle 5", "100/s"),
            ("--throttle 0/s", "100/s"),
            ("--qos-delay 5", "--throttle"),
            ("--replace-after 0", "from 1 on"),
            ("--clock soon", "a duration"),
            ("--seed x", "from 0 on"),
        ] {
            let refused = fault_plan(&typed.split(' ').collect::<Vec<_>>()).unwrap_err();
            assert!(refused.contains(said), "{typed}: {refused}");
        }
    }

    #[test]
    fn addresses_have_rates_or_are_dead() {
        let plain = Listen::from(std::net::SocketAddr::from(([127, 0, 0, 1], 9000)));
        for (text, expected) in [
            ("127.0.0.1:9000", plain),
            ("localhost:9000", plain),
            ("127.0.0.1:9000,dead", Listen { dead: true, ..plain }),
            ("127.0.0.1:9000,rate=16MiB/s", Listen { rate: Some(16 << 20), ..plain }),
            ("localhost:9000,rate=1KiB/s,dead", Listen { rate: Some(1024), dead: true, ..plain }),
        ] {
            assert_eq!(listen(text), Ok(expected), "{text}");
        }
        for (text, said) in [
            ("127.0.0.1:9000,slow", "'slow'"),
            ("127.0.0.1:9000,rate=16", "16MiB/s"),
            ("localhost,dead", "IP address"),
        ] {
            assert!(listen(text).unwrap_err().contains(said), "{text}");
        }
    }

    #[test]
    fn rates_change_at_times_that_go_up() {
        let s = Duration::from_secs;
        assert_eq!(rates("1KiB/s"), Ok(1024.into()));
        let then = vec![(s(5), 2048), (s(60), 1024)];
        assert_eq!(rates("1KiB/s@5s:2KiB/s@1m:1KiB/s"), Ok(Rates { first: 1024, then }));
        for wrong in
            ["", "1KiB", "1KiB/s@5s", "1KiB/s@5s:2KiB/s@5s:1KiB/s", "1KiB/s@5:2KiB/s", "0/s@5s:1KiB/s"]
        {
            assert!(rates(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn synthetic_objects_are_one_or_a_row() {
        let one = |key: &str, bytes| Ok(Synthetic::One("b".to_owned(), key.to_owned(), bytes));
        assert_eq!(synthetic("b/k/l=v=1KiB"), one("k/l=v", 1024));
        assert_eq!(synthetic("b/100%d=0"), one("100%d", 0));
        let row = Series::new("b", "p/%07d", 1_000_000, 1024).map(Synthetic::Row);
        assert_eq!(synthetic("b/p/%07d=1KiB*1000000"), row);
        for (wrong, said) in [
            ("b=1KiB", "BUCKET/KEY=SIZE"),
            ("/k=1", "BUCKET/KEY=SIZE"),
            ("b/=1", "BUCKET/KEY=SIZE"),
            ("b/k", "BUCKET/KEY=SIZE"),
            ("b/k=x", "BUCKET/KEY=SIZE"),
            ("b/k=1KiBx2", "SIZE*COUNT"),
            ("b/k=1*2", "%07d"),
            ("b/k%d=1*", "SIZE*COUNT"),
            ("b/k%d=1*0", "no objects"),
            ("b/k%d=1*11", "%02d"),
        ] {
            let refused = synthetic(wrong).unwrap_err();
            assert!(refused.contains(said), "{wrong}: {refused}");
        }
    }
}
