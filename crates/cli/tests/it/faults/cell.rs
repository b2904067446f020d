//! One cell: an origin in its weather, a run of the program against it, and whether what is seen is what the
//! table says.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flatout_server::{Identity, Options, Origin, Store, synthetic_bytes};

use super::log::Log;
use super::run::{Run, run};
use super::table::{Addresses, Dialect, End, Keys, Row, SETTINGS, Seen, Work};
use crate::folder::{EARLIER, Folder};
use crate::objects::{ACCESS_KEY, SECRET_KEY};
use crate::program::{events, flatout};

/// A part of every run, as in [`SETTINGS`].
pub const PART_BYTES: u64 = 128 << 10;
/// The last of eight parts is a short one.
const OBJECT_BYTES: u64 = (1 << 20) - 1_000;
/// Of uploads, whose parts have 5 MiB at least: two parts.
const SENT_BYTES: u64 = (5 << 20) + 300_001;
/// The files of an uploaded folder: an empty one, small ones, and one of two parts.
const SENT_SIZES: [u64; 4] = [0, 20_000, 20_001, SENT_BYTES];
/// What lies in the folder: nothing, one part, and several.
const SIZES: [u64; 7] = [0, 20_000, 20_001, 20_002, 20_003, PART_BYTES, 2 * PART_BYTES + 40_000];
pub const BUCKET: &str = "bucket";
/// The beginning of every token that the programs give.
const TOKEN: &str = "FwoGZXIvYXdzEJr-";

/// One square of the table.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    pub row: &'a Row,
    pub work: Work,
    pub dialect: Dialect,
    pub tls: Option<&'a Authority>,
}

/// What a cell's files are in; gone with it.
pub struct Scene {
    /// Where the bytes land, or come from.
    pub folder: Folder,
    /// The origin's, of uploads.
    pub root: tempfile::TempDir,
    /// The log, and what gives keys.
    aside: tempfile::TempDir,
}

impl Cell<'_> {
    /// `stall/file/s3/plain`
    pub fn name(&self) -> String {
        let work = format!("{:?}", self.work).to_lowercase();
        let dialect = format!("{:?}", self.dialect).to_lowercase();
        let tls = if self.tls.is_some() { "tls" } else { "plain" };
        format!("{}/{work}/{dialect}/{tls}", self.row.name)
    }

    pub fn seen(&self) -> Seen {
        (self.row.seen)(self.work, self.dialect)
    }

    /// Runs it; how often the run met with the row's day, as far as that can be told from outside.
    ///
    /// # Errors
    /// What is not as the table says, and what was seen instead.
    pub fn check(&self, seed: u64) -> Result<usize, String> {
        let scene = Scene {
            folder: Folder::new(),
            root: tempfile::tempdir().unwrap(),
            aside: tempfile::tempdir().unwrap(),
        };
        let input = self.prepare_upload(&scene);
        let origin = self.origin(seed, &scene);
        let run = run(&mut self.command(&origin, &scene), self.work, input);
        // Whatever was still on its way is in the log then.
        origin.stop().expect("the log is whole");
        let log = Log::read(&scene.log(), &self.objects());
        let judged = self.judge(&run, &log, &scene);
        judged.map(|()| self.hits(&run, &log)).map_err(|wrong| format!("{wrong}\n{run}{log:?}"))
    }

    /// Answers with a fault, and refusals; that the rate fell while it went on; requests to the slow address;
    /// that connecting took as long as it takes where nobody answers.
    fn hits(&self, run: &Run, log: &Log) -> usize {
        let mut falls = self.row.total.iter().flat_map(|rates| &rates.then);
        let fell = falls.any(|(from, _)| log.goes_across(*from));
        let waited = self.row.addresses.have_tried_dead(run.took);
        let slow = if self.row.addresses == Addresses::SlowAndLive { log.at_first_address() } else { 0 };
        log.hits + usize::from(fell) + usize::from(waited) + slow
    }

    /// Keys and sizes; the keys begin with the cell's name, so that chance is another in every cell.
    pub fn objects(&self) -> Vec<(String, u64)> {
        match self.work {
            Work::Folder | Work::SendFolder => {
                let sizes = if self.work == Work::Folder { &SIZES[..] } else { &SENT_SIZES };
                let sizes = sizes.iter().enumerate();
                sizes.map(|(number, bytes)| (format!("{}/many/{number}", self.name()), *bytes)).collect()
            }
            _ if self.work.sends() => vec![(format!("{}/object", self.name()), SENT_BYTES)],
            _ => vec![(format!("{}/object", self.name()), OBJECT_BYTES)],
        }
    }

    fn origin(&self, seed: u64, scene: &Scene) -> Origin {
        let objects = self.objects().into_iter().map(|(key, bytes)| (BUCKET.to_owned(), key, bytes));
        let mut options = Options::new(match self.work.sends() {
            true => Store::Root(scene.root.path().to_owned()),
            false => Store::Synthetic(objects.collect(), vec![]),
        });
        options.auth = Some((ACCESS_KEY.to_owned(), SECRET_KEY.to_owned()));
        options.tls = self.tls.map(|authority| authority.identity.clone());
        options.total = self.row.total.clone();
        options.fault_plan = self.row.fault_plan.clone();
        (options.fault_plan.seed, options.fault_plan.log) = (seed, Some(scene.log()));
        match self.row.addresses {
            Addresses::One => Origin::start(options).expect("an origin on a free port"),
            two => on_two_addresses(options, two),
        }
    }

    fn command(&self, origin: &Origin, scene: &Scene) -> Command {
        let scheme = origin.scheme();
        // Of two addresses both have the same port.
        let port = origin.addresses()[0].port();
        let resolve = self.row.addresses.resolve(port);
        let host = if resolve.is_some() { "localhost" } else { "127.0.0.1" };
        let endpoint = format!("{scheme}://{host}:{port}");
        let (key, folder) = (format!("{}/object", self.name()), &scene.folder);
        let bucket = match self.dialect {
            Dialect::S3 => format!("s3://{BUCKET}"),
            Dialect::Oss => format!("oss://{BUCKET}"),
        };
        let (source, many) = (format!("{bucket}/{key}"), format!("{bucket}/{}/many/", self.name()));
        let mut command = match self.work {
            Work::File => flatout(&["cp", "--json", &source, &folder.at("model")]),
            Work::Stream => flatout(&["cat", &source]),
            Work::Folder => flatout(&["cp", "-r", &many, &folder.at("new")]),
            Work::Memory => {
                flatout(&["bench", "peer", &source, "--landing", "memory", "--check", &folder.at("new")])
            }
            Work::Nowhere => flatout(&["bench", "peer", &source]),
            Work::SendFile => flatout(&["cp", &folder.at("sent/object"), &source]),
            Work::SendStream => flatout(&["cp", "-", &source]),
            Work::SendFolder => flatout(&["cp", "-r", &folder.at("sent"), &many]),
        };
        match self.dialect {
            Dialect::S3 => command.args(["--endpoint-url", &endpoint]),
            Dialect::Oss => command.args(["--oss-endpoint", &endpoint, "--oss-region", "cn-hangzhou"]),
        };
        command.args(self.settings()).args(["--retries", &self.row.retries.to_string()]);
        if let Some(authority) = self.tls {
            command.arg("--ca-bundle").arg(authority.file.path());
        }
        if let Some(resolve) = resolve {
            command.args(["--resolve", &resolve]);
        }
        self.give_keys(&mut command, scene);
        command
    }

    /// Those of the row, and of all rows where that says nothing.
    fn settings(&self) -> impl Iterator<Item = &'static str> {
        let own = self.row.settings;
        let common = SETTINGS.chunks(2).filter(|pair| !own.contains(&pair[0])).flatten();
        common.chain(own).copied()
    }

    fn give_keys(&self, command: &mut Command, scene: &Scene) {
        let names = match self.dialect {
            Dialect::S3 => ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
            Dialect::Oss => ["OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET"],
        };
        match self.row.keys {
            Keys::Variables => command.envs(names.into_iter().zip([ACCESS_KEY, SECRET_KEY])),
            Keys::NewTokens | Keys::SameToken => {
                scene.write_programs(self.row.keys == Keys::NewTokens);
                command.env("HOME", scene.aside.path())
            }
        };
    }

    fn judge(&self, run: &Run, log: &Log, scene: &Scene) -> Result<(), String> {
        for secret in [SECRET_KEY, TOKEN] {
            ensure(!run.said().contains(secret), || format!("gave away {secret}"))?;
        }
        ensure(!run.left_processes, || "left a process behind".into())?;
        if self.work.sends() {
            self.judge_keys(log, scene)?;
            self.row.fault_plan.qos_delay.and_then(|delay| log.hurried(delay)).map_or(Ok(()), Err)?;
            return self.judge_stored(run, log, scene);
        }
        let all = self.objects();
        let came: Vec<&(String, u64)> =
            all.iter().filter(|(key, bytes)| log.is_listed() && log.came(key, *bytes)).collect();
        let end = match self.seen() {
            Seen::Whole => None,
            Seen::Fails(end) => Some(end),
            Seen::WhenHit(end) => (came.len() < all.len()).then_some(end),
            Seen::Nothing(_) => unreachable!("it is not run"),
        };
        match &end {
            None => {
                ensure(came.len() == all.len(), || "gave up on an object".into())?;
                ensure(run.code == Some(0) && run.stderr.is_empty(), || "is no clean end".into())?;
                log.unexplained(self.row.spare).map_or(Ok(()), Err)?;
            }
            Some(end) => self.judge_end(end, run, log)?,
        }
        self.judge_keys(log, scene)?;
        self.row.fault_plan.qos_delay.and_then(|delay| log.hurried(delay)).map_or(Ok(()), Err)?;
        if end.is_none() && self.work == Work::File {
            judge_verified(run, log)?;
        }
        self.judge_bytes(&came, end.is_some(), run, log, scene)
    }

    /// Whoever gives keys is asked by each client of the run at its start, and once for each token that has
    /// expired.
    fn judge_keys(&self, log: &Log, scene: &Scene) -> Result<(), String> {
        let Some(life) = self.row.fault_plan.expire_token else { return Ok(()) };
        let (asked, expired) = (scene.asked_for_keys(), log.expired_tokens(life));
        let clients = match self.work {
            Work::File | Work::Stream | Work::Folder => 1,
            _ if self.work.sends() => 1,
            // `bench` looks at the object with clients of their own before the one that is measured.
            _ => 3,
        };
        ensure(asked == clients + expired, || {
            format!("keys were asked for {asked} times, and {expired} expired")
        })
    }

    pub fn judge_end(&self, end: &End, run: &Run, log: &Log) -> Result<(), String> {
        ensure(run.code == Some(end.exit), || format!("the exit code is not {}", end.exit))?;
        let most = log.most_asked();
        ensure(end.attempts.contains(&most), || format!("{most} attempts, not {:?}", end.attempts))?;
        let mut rest = run.stderr.as_str();
        for words in end.says {
            let at = rest.find(words);
            rest = &rest[at.ok_or_else(|| format!("does not say {words:?} in its place"))? + words.len()..];
        }
        let mut lines = run.stderr.lines();
        let in_form = |line: &str| line.starts_with("flatout: error: ") || line.starts_with("  hint: ");
        ensure(lines.all(in_form), || "standard error has a line in another form".into())?;
        let lines = run.stderr.lines().count();
        ensure(matches!(self.work, Work::Folder | Work::SendFolder) || lines <= 2, || {
            "says more than an error and a hint".into()
        })
    }

    /// What has landed is whole, and nothing else is there.
    fn judge_bytes(
        &self,
        came: &[&(String, u64)],
        failed: bool,
        run: &Run,
        log: &Log,
        scene: &Scene,
    ) -> Result<(), String> {
        let object = || self.bytes(&self.objects()[0].0, OBJECT_BYTES);
        let mut expected = BTreeMap::from([("model".to_owned(), EARLIER.to_vec())]);
        match self.work {
            Work::File if !failed => {
                expected.insert("model".into(), object());
            }
            Work::File => {}
            Work::Stream => {
                // What came before the failure is right; but a wrong bit is known only at the end.
                let (came, object) = (&run.stdout, object());
                let wrong: u32 =
                    came.iter().zip(&object).map(|(came, meant)| (came ^ meant).count_ones()).sum();
                let (wrong, most) = (wrong as usize, if failed { log.flips() } else { 0 });
                let is_all = if failed { came.len() <= object.len() } else { came.len() == object.len() };
                ensure(wrong <= most && is_all, || {
                    format!("standard output is wrong: {} bytes, {wrong} other bits", came.len())
                })?;
            }
            Work::Folder => {
                for (key, bytes) in came.iter().copied() {
                    let name = key.rsplit('/').next().unwrap_or_default();
                    expected.insert(format!("new/{name}"), self.bytes(key, *bytes));
                }
            }
            Work::Memory if !failed => {
                expected.insert("new".into(), object());
            }
            _ => {}
        }
        if matches!(self.work, Work::Memory | Work::Nowhere) {
            let said = String::from_utf8_lossy(&run.stdout);
            let last = said.lines().last().unwrap_or_default();
            let done = format!("done {OBJECT_BYTES}");
            let is_told = if failed { last.starts_with("failed ") } else { last == done };
            ensure(is_told, || format!("the lab is told {last:?}"))?;
        }
        let found = files(scene.folder.path(), "");
        let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>().join(" ");
        ensure(names(&found) == names(&expected), || {
            format!("there are the files {}; there should be {}", names(&found), names(&expected))
        })?;
        match found.iter().find(|(name, bytes)| !self.is_right(name, bytes, &expected[*name])) {
            Some((name, _)) => Err(format!("{name} has wrong bytes")),
            None => Ok(()),
        }
    }

    /// An object that was replaced while it was read is all of the one or all of the other.
    fn is_right(&self, name: &str, found: &[u8], expected: &[u8]) -> bool {
        let is_read_again = matches!(self.work, Work::File | Work::Folder);
        let may_be_new = self.row.fault_plan.replace_after.is_some() && is_read_again;
        found == expected || may_be_new && found == self.replaced(name, expected.len() as u64)
    }

    /// What the tunnel puts in an object's place: the same pattern, from its second byte on.
    fn replaced(&self, name: &str, bytes: u64) -> Vec<u8> {
        let mut body = vec![0; bytes as usize];
        let key = match name.strip_prefix("new/") {
            Some(one) => format!("{}/many/{one}", self.name()),
            None => format!("{}/object", self.name()),
        };
        synthetic_bytes(BUCKET, &key, 1..bytes + 1, &mut body);
        body
    }

    pub fn bytes(&self, key: &str, bytes: u64) -> Vec<u8> {
        let mut body = vec![0; bytes as usize];
        synthetic_bytes(BUCKET, key, 0..bytes, &mut body);
        body
    }
}

impl Scene {
    fn log(&self) -> std::path::PathBuf {
        self.aside.path().join("log")
    }

    /// How often one of the programs was.
    fn asked_for_keys(&self) -> usize {
        let counts =
            ["aws.sh.count", "aliyun.sh.count"].map(|name| fs::read_to_string(self.aside.path().join(name)));
        counts.into_iter().flatten().map(|count| count.lines().count()).sum()
    }

    /// Programs that print keys, and the files that name them, of both clouds.
    fn write_programs(&self, new_tokens: bool) {
        let at = |name: &str| self.aside.path().join(name);
        let number = if new_tokens { "$(wc -l < \"$0.count\")" } else { "1" };
        for (name, keys) in [
            (
                "aws.sh",
                r#"{"Version": 1, "AccessKeyId": "AK", "SecretAccessKey": "SK", "SessionToken": "TOKEN$n"}"#,
            ),
            (
                "aliyun.sh",
                r#"{"mode": "StsToken", "access_key_id": "AK", "access_key_secret": "SK", "sts_token": "TOKEN$n"}"#,
            ),
        ] {
            let keys = keys.replace("\"AK\"", &format!("\"{ACCESS_KEY}\""));
            let keys = keys
                .replace("\"SK\"", &format!("\"{SECRET_KEY}\""))
                .replace("TOKEN$n", &format!("{TOKEN}$n"));
            let script = format!("echo . >> \"$0.count\"\nn={number}\ncat <<EOF\n{keys}\nEOF\n");
            fs::write(at(name), script).unwrap();
        }
        fs::create_dir(at(".aws")).unwrap();
        let process = format!("[default]\ncredential_process = sh \"{}\"\n", at("aws.sh").display());
        fs::write(at(".aws/config"), process).unwrap();
        fs::create_dir(at(".aliyun")).unwrap();
        let command = format!("sh \"{}\"", at("aliyun.sh").display());
        let profile = serde_json::json!({"name": "default", "mode": "External", "process_command": command});
        let file = serde_json::json!({"current": "default", "profiles": [profile]});
        fs::write(at(".aliyun/config.json"), file.to_string()).unwrap();
    }
}

/// On a port that is free on both addresses; another test may take it in between, and then on another.
fn on_two_addresses(mut options: Options, addresses: Addresses) -> Origin {
    loop {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        options.listen = addresses.listen(free.port());
        match Origin::start(options.clone()) {
            Ok(origin) => return origin,
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                std::thread::sleep(Duration::from_millis(1))
            }
            Err(error) => panic!("an origin on {:?}: {error}", options.listen),
        }
    }
}

/// An object whose checksum nobody told is whole all the same, and is said to be unverified.
fn judge_verified(run: &Run, log: &Log) -> Result<(), String> {
    let events = events(&String::from_utf8_lossy(&run.stdout));
    let object = events.iter().find(|event| event["event"] == "object");
    let verified = object.and_then(|object| object["verified"].as_str()).unwrap_or_default();
    let is_so = !verified.is_empty() && (!log.has_refused_head() || verified.starts_with("none: "));
    ensure(is_so, || format!("the checksum's HEAD was refused, and verified is {verified:?}"))
}

/// One identity for the origins of all cells, and the file for their clients.
pub struct Authority {
    identity: Identity,
    file: tempfile::NamedTempFile,
}

impl Authority {
    pub fn new() -> Authority {
        let (identity, pem) = Identity::for_this_run(&[]).expect("randomness");
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), pem).unwrap();
        Authority { identity, file }
    }
}

/// Everything below a folder that is no folder: path and content.
pub fn files(folder: &Path, before: &str) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{before}{}", entry.file_name().to_string_lossy());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path(), &format!("{name}/"))),
            false => drop(found.insert(name, fs::read(entry.path()).unwrap())),
        }
    }
    found
}

pub fn ensure(is_so: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(wrong()) }
}
