//! The command line as types: commands, their own flags, and the help that comes with them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, Parser, Subcommand};
use flatout_server::{Listen, Rates};
use flatout_wire::range::Span;

use crate::bench::{Landing, Shape};
use crate::knobs::{Knobs, is_of_the_origin};
use crate::select::Filters;
use crate::weather::{self, Synthetic, Weather};

#[derive(Debug, Parser)]
#[command(
    name = "flatout",
    version,
    about = "Moves bytes between object storage and compute, as fast as machine and network allow",
    after_help = TOP_EXAMPLES,
    max_term_width = 110,
    disable_help_subcommand = true
)]
pub struct Line {
    #[command(subcommand)]
    pub command: Command,

    /// Newline-delimited JSON events (docs/json.md) instead of text; on standard error while standard output carries
    /// an object
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,

    /// Say nothing but errors
    #[arg(long, short, global = true, help_heading = "Output")]
    pub quiet: bool,

    /// No progress bar (there is none anyway when standard error is not a terminal)
    #[arg(long, global = true, help_heading = "Output")]
    pub no_progress: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copy objects: one to a file, into a folder or to standard output; a folder or a pattern of them into a folder
    #[command(after_help = CP_EXAMPLES)]
    Cp(Cp),
    /// Write objects to standard output, one after the other
    #[command(after_help = CAT_EXAMPLES)]
    Cat(Cat),
    /// List a bucket or what lies under a prefix; without a URL, the buckets
    #[command(after_help = LS_EXAMPLES)]
    Ls(Ls),
    /// Show what the origin says about an object, without fetching it
    #[command(after_help = STAT_EXAMPLES)]
    Stat(Stat),
    /// Serve S3, OSS and plain HTTP from a folder, from memory or made up: an origin for development and measurement
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Serve>),
    /// Measure: throughput, CPU and memory, beside the floor that plain sockets set
    #[command(subcommand)]
    Bench(Bench),
    /// Show what is set, and which flag, variable or file says so
    #[command(subcommand, after_help = CONFIG_SHORT, after_long_help = CONFIG_LONG)]
    Config(Config),
    /// Print the version
    Version,
    /// One repetition of a measurement, asked for on standard input
    #[command(name = "__bench-child", hide = true)]
    BenchChild,
    /// Reads standard input and drops it
    #[command(name = "__drain", hide = true)]
    Drain,
}

#[derive(Debug, clap::Args)]
pub struct Cp {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH; s3://BUCKET[/FOLDER] with -r; a pattern of keys,
    /// as in 's3://BUCKET/FOLDER/*.bin'
    #[arg(value_name = "SRC")]
    pub source: String,
    /// A file, a folder (existing, or ending in '/'), or - for standard output
    #[arg(value_name = "DST")]
    pub target: String,
    /// Only these bytes: FIRST-LAST (both included, as in HTTP), FIRST- or -COUNT from the end; bytes=0-1 too
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub range: Option<Span>,
    /// Everything below a folder of a bucket, into the folder DST; with a pattern, what lies in folders that match too
    #[arg(long, short, conflicts_with = "range")]
    pub recursive: bool,
    /// Skip objects whose file exists, whatever is in it
    #[arg(long, short)]
    pub no_clobber: bool,
    /// Only say what would be copied
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Cat {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH
    #[arg(value_name = "URL", required = true)]
    pub sources: Vec<String>,
    /// Only these bytes of each: FIRST-LAST (both included, as in HTTP), FIRST- or -COUNT from the end; bytes=0-1 too
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub range: Option<Span>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Ls {
    /// s3://BUCKET[/PREFIX], oss://BUCKET[/PREFIX], or a pattern as in 's3://BUCKET/*.bin'; s3://, oss:// or nothing (s3://)
    /// lists the buckets
    #[arg(value_name = "URL")]
    pub location: Option<String>,
    /// Time and size too
    #[arg(long, short)]
    pub long: bool,
    /// Everything under the prefix, not only the next level
    #[arg(long, short)]
    pub recursive: bool,
    /// Sizes in KiB, MiB, GiB (implies --long)
    #[arg(long, short = 'H')]
    pub human_readable: bool,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Stat {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH
    #[arg(value_name = "URL")]
    pub source: String,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Where to listen; may be given several times; port 0 takes a free one; ,rate=16MiB/s is for all connections there,
    /// ,dead never answers
    #[arg(long, value_name = "ADDR:PORT[,rate=RATE][,dead]", default_value = "127.0.0.1:9000", value_parser = weather::listen)]
    pub listen: Vec<Listen>,
    #[command(flatten)]
    pub store: Store,
    /// Let in only requests signed with this key
    #[arg(long, value_name = "AK", requires = "secret_key", value_parser = NonEmptyStringValueParser::new())]
    pub access_key: Option<String>,
    /// Its secret
    #[arg(long, value_name = "SK", requires = "access_key", value_parser = NonEmptyStringValueParser::new())]
    pub secret_key: Option<String>,
    /// Let anything in, unsigned too; http://ADDR:PORT/BUCKET/KEY is then a plain URL; to be said where no key is
    #[arg(long, conflicts_with_all = ["access_key", "secret_key"])]
    pub no_auth: bool,
    /// Wait this long before each answer
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub latency: Option<Duration>,
    /// At most this much through each connection, as in 16MiB/s
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub per_connection: Option<u64>,
    /// At most this much through all connections together; 64MiB/s@5s:1MiB/s is another rate from 5 s on
    #[arg(long, value_name = "RATE[@TIME:RATE]", value_parser = weather::rates)]
    pub total: Option<Rates>,
    /// Take writes and forget them
    #[arg(long)]
    pub sink: bool,
    /// Speak TLS with a certificate made for this run; what clients have to trust is written to this file, for their
    /// --ca-bundle
    #[arg(long, value_name = "CA_FILE", conflicts_with_all = ["tls_cert", "tls_key"])]
    pub tls: Option<PathBuf>,
    /// Speak TLS with this certificate (PEM, its chain behind it)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    #[command(flatten)]
    pub weather: Weather,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Store {
    /// Serve this folder: each folder in it is a bucket
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Serve what was put, from memory
    #[arg(long)]
    pub memory: bool,
    /// Serve bytes computed from their offset; with *COUNT that many objects, numbered from 0 where %07d stands in KEY;
    /// may be given several times
    #[arg(long, value_name = "BUCKET/KEY=SIZE[*COUNT]", value_parser = weather::synthetic)]
    pub synthetic: Vec<Synthetic>,
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Fetch one object, or many, again and again, each time in a process of its own, and report each run
    #[command(after_help = GET_EXAMPLES)]
    Get(BenchGet),
    /// See it work: an origin on this machine, one large object, and the floor beside it
    #[command(after_help = DEMO_EXAMPLES, mut_args(hidden_where_ignored))]
    Demo(BenchDemo),
    /// Fetch one object by every combination of concurrency and part size, in turn, and name the fastest
    #[command(after_help = SWEEP_EXAMPLES, mut_args(listed_where_swept))]
    Sweep(BenchSweep),
    /// One fetch in this process, for a lab that measures it from outside: 'ready' when everything is prepared, 'go' on
    /// standard input starts it, 'done BYTES' ends it
    #[command(hide = true)]
    Peer(BenchPeer),
}

#[derive(Debug, clap::Args)]
pub struct BenchGet {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH; s3://BUCKET[/FOLDER] with -r
    #[arg(value_name = "URL")]
    pub source: String,
    /// Everything below a folder of a bucket, listed before the clock starts; the landing is nowhere or file:DIR
    #[arg(long, short, conflicts_with = "parts")]
    pub recursive: bool,
    /// Where the bytes go: nowhere, memory (one buffer, touched before the clock starts), stream (a pipe that is read
    /// and dropped) or file:PATH (new each time, removed afterwards; a folder with -r)
    #[arg(long, value_name = "LANDING", default_value = "nowhere")]
    pub landing: Landing,
    /// How many runs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// Alternate with the floor: plain loops that receive the same ranges into the same landing
    #[arg(long)]
    pub floor: bool,
    /// Write a CSV row for each part of each run: times in seconds since the run's start
    #[arg(long, value_name = "FILE")]
    pub parts: Option<PathBuf>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct BenchSweep {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH
    #[arg(value_name = "URL")]
    pub source: String,
    /// Where the bytes go: nowhere, memory (one buffer, touched before the clock starts), stream (a pipe that is read
    /// and dropped) or file:PATH (new each time, removed afterwards)
    #[arg(long, value_name = "LANDING", default_value = "nowhere")]
    pub landing: Landing,
    /// How many runs of each combination
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeat: u32,
    /// Write the figures, throughput over time and the course of all parts as one self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct BenchPeer {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH; s3://BUCKET[/FOLDER] with -r
    #[arg(value_name = "URL")]
    pub source: String,
    /// Everything below a folder of a bucket
    #[arg(long, short)]
    pub recursive: bool,
    /// nowhere, memory (one buffer, touched before 'ready') or file:PATH (new; it stays)
    #[arg(long, value_name = "LANDING", default_value = "nowhere")]
    pub landing: Landing,
    /// The plain loop of this shape in flatout's place: recv:N:SIZE or epoll:N:SIZE, connections and bytes a call
    #[arg(long, value_name = "SHAPE")]
    pub floor: Option<Shape>,
    /// Show what was delivered: a file with the object's bytes, each at its offset; with -r a folder
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct BenchDemo {
    /// Size of the object
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    pub size: u64,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Every setting, its value and where it came from; secrets are masked
    #[command(after_help = CONFIG_SHORT)]
    Show(ConfigShow),
    /// Where the config file is, or would be
    Path,
}

#[derive(Debug, clap::Args)]
pub struct ConfigShow {
    #[command(flatten)]
    pub knobs: Knobs,
}

const TOP_EXAMPLES: &str = "\
Examples:
  flatout cp s3://models/llama/model.safetensors .
  flatout cat http://127.0.0.1:9000/logs/today.zst | zstd -dc
  flatout ls -lH s3://models/llama/
  flatout bench get s3://models/llama/model.safetensors --floor

Keys come from where aws and aliyun have theirs: environment, profiles (--profile), SSO, roles of pods and machines; \
--no-sign-request asks for none. The endpoint comes from --endpoint-url, \
AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL; flatout config show says what is set and where. Sizes take units: 8MiB.

Exit codes: 0 done, 1 failed, 2 something left out, 3 not all is known, 4 usage, 5 access refused, 6 throttled, \
130 interrupted.";

const CP_EXAMPLES: &str = "\
Examples:
  flatout cp s3://models/llama/model.safetensors .
  flatout cp s3://models/llama/model.safetensors /dev/shm/model --parallel 32
  flatout cp http://127.0.0.1:9000/models/readme.txt docs/
  flatout cp s3://models/big.tar - | tar -x
  flatout cp s3://models/big.tar head.bin --range 0-1048575
  flatout cp -r s3://models/llama/ llama/
  flatout cp -r s3://data/ . --exclude '/tmp/' --include '*.parquet'
  flatout cp 's3://logs/2026-11-2?/*.zst' logs/

The file appears under its name only when it is whole and, where the origin states a checksum, verified; until then, \
and whenever something fails, what stood there before stays.

With -r the source is a folder, and what lies below it goes below DST under its name relative to that folder; a / at \
the end of either changes nothing. Of a pattern, names are relative to the last folder before the first wildcard; * and \
? stay within a folder, ** does not. A key that holds such characters is found as it stands first. Of --include and \
--exclude, in the order typed, the first that matches decides. Objects that no file can stand for (a/../b, a//b, a and a/b \
at once) are left out with a warning and exit code 2: docs/names.md.";

const CAT_EXAMPLES: &str = "\
Examples:
  flatout cat s3://logs/2026-11-21.zst | zstd -dc | grep error
  flatout cat s3://data/part-0 s3://data/part-1 > whole
  flatout cat --range -65536 s3://data/table.parquet | tail -c 4

Many connections fetch ahead, at most --window bytes; the output is in order. The first failure ends it. When the \
reader closes the pipe (as head does) flatout ends quietly with exit code 0.";

const LS_EXAMPLES: &str = "\
Examples:
  flatout ls
  flatout ls s3://models/
  flatout ls -lH s3://models/llama/
  flatout ls 's3://models/**/*.safetensors'
  flatout ls -r s3://models/llama/ --json | jq -r 'select(.event==\"entry\").key'";

const STAT_EXAMPLES: &str = "\
Examples:
  flatout stat s3://models/llama/model.safetensors
  flatout stat s3://models/llama/model.safetensors --json | jq .bytes";

const SERVE_EXAMPLES: &str = "\
Examples:
  flatout serve --root ./buckets --no-auth
  flatout serve --memory --access-key test --secret-key testtest --listen 127.0.0.1:9000
  flatout serve --synthetic demo/object=4GiB --no-auth --listen 127.0.0.1:0
  flatout serve --synthetic 'many/file-%04d=128KiB*10000' --no-auth
  flatout serve --synthetic far/object=1GiB --no-auth --latency 30ms --per-connection 90MB/s
  flatout serve --synthetic bad/object=1GiB --no-auth --stall 2%:30s --reset 5% --error 1%:InternalError --seed 7
  flatout serve --root ./buckets --no-auth --flip 0.1 --log requests.jsonl
  flatout serve --memory --no-auth --tls ca.pem
  flatout ls s3:// --endpoint-url https://localhost:9000 --ca-bundle ca.pem

When ready it prints 'listening on http://ADDR:PORT' (https with --tls) for each address. Ctrl-C or SIGTERM ends it, exit code 0.

The wind tunnel makes bad days. An answer meets with the first fault, in the order typed, that chance chooses for it: by seed, object, last byte asked for and attempt, not by when it is asked. docs/wind-tunnel.md says more.";

const GET_EXAMPLES: &str = "\
Examples:
  flatout bench get http://127.0.0.1:9000/demo/object --repeat 7 --floor
  flatout bench get s3://models/big --landing memory --parallel 32 --shards 4 --json
  flatout bench get s3://models/big --landing file:/dev/shm/x --parts parts.csv
  flatout bench get -r s3://data/small/ --landing file:/dev/shm/x --floor

The floor is the best of plain blocking recv(2) on 1, 2, 4 and 8 connections, a thread each, with 256 KiB and 1 MiB a \
call, and of one epoll thread over 4 connections. All shapes run once, the three fastest twice more; the one with the \
best median then alternates with flatout. Over https it is a bare tokio-rustls loop, a thread for each connection.

With -r the floor is a thread for each of 1, 2, 4 or 8 connections that asks for the same objects one after the \
other and writes the same files; over https it has none.";

const SWEEP_EXAMPLES: &str = "\
Examples:
  flatout bench sweep s3://models/big --parallel 4,16,64 --part-size 2MiB,8MiB,32MiB
  flatout bench sweep s3://models/big --report sweep.html
  flatout bench sweep https://host/file.bin --parallel 8,16 --part-size 8MiB --landing file:/dev/shm/x --repeat 7

Each run is a process of its own; the combinations take turns, in another order in each round, so that a drift of machine \
or network favours none. The table holds medians. A combination that fails is a row that says why; the others go on, and \
the exit code is the failure's.";

const CONFIG_SHORT: &str = "\
Examples:
  flatout config show
  flatout config show --profile minio
  flatout config show --json | jq -r 'select(.layer == \"found\") | .name'";

const CONFIG_LONG: &str = "\
A value comes from the first of these that has one:
  flag         --region
  environment  FLATOUT_REGION
  profile      ~/.config/flatout/config.toml, or the file that FLATOUT_CONFIG names
  found        AWS_REGION, ~/.aws/config, OSS_REGION, ~/.aliyun/config.json, ~/.ossutilconfig, HTTPS_PROXY, ...
  default

The config file is TOML. Keys are the flags without their dashes; those at the top are the default profile's, a \
table [profile.NAME] holds those of another, which takes nothing from the default one:

  part-size = \"16MiB\"
  resolve = [\"minio:9000:10.0.0.1\", \"minio:9000:10.0.0.2\"]

  [profile.minio]
  endpoint-url = \"http://minio:9000\"

--profile, or FLATOUT_PROFILE, chooses a profile of this file, of ~/.aws and of ~/.aliyun; without it AWS_PROFILE and \
ALIBABA_CLOUD_PROFILE choose among their own tools' files. The file holds no keys: those stay with AWS's and Alibaba \
Cloud's own.

Examples:
  flatout config show
  flatout config show --profile minio
  flatout config show --json | jq -r 'select(.layer == \"found\") | .name'";

const DEMO_EXAMPLES: &str = "\
The bytes go nowhere: memory that was never touched would cost more than the transfer. Everything stays on this \
machine.

Examples:
  flatout bench demo
  flatout bench demo --size 1GiB --parallel 4";

/// The demo brings its own origin: what says where another one is has no effect there.
fn hidden_where_ignored(arg: Arg) -> Arg {
    let ignored = is_of_the_origin(&arg);
    arg.hide(ignored)
}

/// A sweep goes through several values of what it varies, and takes them from nowhere but its command line.
fn listed_where_swept(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "parallel" => arg.value_delimiter(',').value_name("N,...").help(
            "Parts in flight, one number after the other [default: 1, 2 and 4 times the cores, at least 4,8,16]",
        ),
        "part-size" => arg
            .value_delimiter(',')
            .value_name("SIZE,...")
            .help("Bytes asked for in one request, one size after the other [default: 2MiB,8MiB,32MiB]"),
        _ => arg,
    }
}

pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let wrong = |_| "write an IP address and port, as in 127.0.0.1:9000 or [::1]:0".to_owned();
    numeric.as_deref().unwrap_or(text).parse().map_err(wrong)
}

pub fn size(text: &str) -> Result<u64, String> {
    flatout_settings::parse_size(text).map_err(|expected| format!("not {expected}"))
}

pub fn duration(text: &str) -> Result<Duration, String> {
    let ms = flatout_settings::parse_duration(text).map_err(|expected| format!("not {expected}"))?;
    Ok(Duration::from_millis(ms))
}

pub fn rate(text: &str) -> Result<u64, String> {
    let bytes = text
        .strip_suffix("/s")
        .ok_or_else(|| "not a rate: write bytes per second, as in 16MiB/s".to_owned())?;
    match size(bytes)? {
        0 => Err("a rate of nothing moves nothing".into()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_tree_of_commands_is_sound() {
        Line::command().debug_assert();
    }

    #[test]
    fn an_address_to_listen_on_has_a_port() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(socket_address(text).ok(), expected.map(|address| address.parse().unwrap()), "{text}");
        };
        check("127.0.0.1:9000", Some("127.0.0.1:9000"));
        check("[::1]:0", Some("[::1]:0"));
        check("localhost:0", Some("127.0.0.1:0"));
        for wrong in ["localhost", "foo", "127.0.0.1", ":99999", "::1:0x", "localhost:99999", ""] {
            check(wrong, None);
        }
    }

    #[test]
    fn values_with_units() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(rate(text).ok(), expected, "{text}");
        check("16MiB/s", Some(16 << 20));
        check("90MB/s", Some(90_000_000));
        check("16MiB", None);
        check("0/s", None);
    }
}
