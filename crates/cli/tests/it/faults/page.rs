//! docs/faults.md, written from the table.

use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::table::{DIALECTS, DOWNLOADS, Dialect, End, Keys, Row, SETTINGS, Seen, Work};
use crate::program::{flatout, signal};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/faults.md");
/// How the line begins that says how a day is made.
const SERVE: &str = "`flatout serve … ";
/// Of `flatout serve` where nothing else is said.
const PORT: u16 = 9000;
const COLUMNS: usize = 100;
const REWRITE: &str = "FLATOUT_FAULTS_PAGE";

/// Compares the page with the table, or writes it if the environment says so.
pub fn check(rows: &[Row]) {
    let (page, path) = (render(rows), Path::new(PAGE));
    if std::env::var_os(REWRITE).is_some_and(|value| value == "write") {
        fs::write(path, &page).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let differs = page.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert!(
        found == page,
        "docs/faults.md is not that of the table, first where it should say {:?}: \
         {REWRITE}=write cargo test -p flatout-cli --test it faults::the_page",
        differs.map_or("", |(expected, _)| expected)
    );
}

/// Starts `flatout serve` with the flags of each section, on free ports; how many there are.
pub fn start_all(rows: &[Row]) -> usize {
    let page = render(rows);
    let lines = page.lines().filter_map(|line| line.strip_prefix(SERVE)?.split_once('`'));
    let started = lines.map(|(flags, _)| {
        let flags = flags.replace(&format!(":{PORT}"), ":0");
        let mut serve = flatout(&["serve", "--memory", "--no-auth"]);
        serve.args(flags.split(' '));
        if !flags.contains("--listen ") {
            serve.args(["--listen", "127.0.0.1:0"]);
        }
        starts(&mut serve);
    });
    started.count()
}

fn starts(serve: &mut Command) {
    let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut first).unwrap();
    signal("TERM", child.id());
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(first.starts_with("listening on "), "{serve:?}: {said}");
}

fn render(rows: &[Row]) -> String {
    let mut page = "# Bad days\n".to_owned();
    let told = [
        "This page lists the faults between an origin and flatout, the reaction of flatout, and the visible result. Every \
         line of the tables is a test. The fault matrix runs each fault for each command, for S3 and for OSS, over plain \
         HTTP and over TLS; TLS makes no visible difference.",
        "The page is written from its table (`crates/cli/tests/it/faults/table.rs`), and a test compares the two. Write it \
         with `{REWRITE}=write cargo test -p flatout-cli --test it faults::the_page`.",
        "After every fault:",
        "- A file has its name only if it is complete; an earlier file stays until then.\n\
         - An uploaded object appears whole or not at all; an earlier object stays until then. No unfinished upload is \
         left, unless the origin refuses to delete it, and then the error says so; an upload keeps its parts once the \
         origin has accepted 64 MiB of them, and the next run resumes it. Exceptions stand below the fault.\n\
         - No process is left, and no temporary file except the partial file of a large object, from which the next run \
         resumes (docs/decisions/journal.md).\n\
         - No message contains a key, token or password.\n\
         - The output of a failed `cat` is a correct prefix, unless a bit was flipped, and the exit code says that it is \
         incomplete.",
        "Exit codes: 0 done, 1 failed, 5 access refused, 6 throttled. With `-r` one object's failure stops no other; the \
         worst code is the run's.",
        "`--retries` (10) bounds the failed attempts in a row; an attempt that landed 64 KiB resets the count. These runs \
         set `--outage-timeout 0s`, so failures of the whole origin count as well; by default flatout waits for the origin \
         (docs/decisions/outages.md).",
        "The runs have `{SETTINGS}`, an object of eight parts, and a folder with an empty object, small ones and one of \
         three parts. Uploads (`put-…`) send an object of two parts, and a folder with an \
         empty file, small ones and one of two parts. A caller's memory and the bytes of `bench put --size` have these \
         days, and more, in the simulation (`crates/engine/src/sim`).",
        "To reproduce a fault, start `flatout serve` with the flags below its name (and `--seed N`, `--log FILE`), and give \
         a command the flags that follow them. `make faults SEEDS=100` runs the matrix with a hundred seeds; a failed cell \
         prints the command that runs it again.",
    ];
    for text in told {
        let text = text.replace("{REWRITE}", REWRITE).replace("{SETTINGS}", &SETTINGS.join(" "));
        page.push('\n');
        text.lines().for_each(|line| page.push_str(&wrapped(line)));
    }
    for row in rows {
        section(&mut page, row);
    }
    page
}

/// The text in lines of at most 100 columns; a code span stays whole.
fn wrapped(text: &str) -> String {
    let (mut out, mut column, mut is_code) = (String::new(), 0, false);
    for word in text.split_inclusive(|c| {
        is_code ^= c == '`';
        c == ' ' && !is_code
    }) {
        let columns = word.trim_end().chars().count();
        if column > 0 && column + columns > COLUMNS {
            out.truncate(out.trim_end().len());
            out.push('\n');
            column = 0;
            if text.starts_with("- ") {
                out.push_str("  ");
                column = 2;
            }
        }
        out.push_str(word);
        column += word.chars().count();
    }
    out + "\n"
}

fn section(page: &mut String, row: &Row) {
    let Row { name, day, does, .. } = row;
    write!(page, "\n## {name}\n\n{}\n{}\n", wrapped(day), wrapped(does)).unwrap();
    let mut how = vec![format!("{SERVE}{}`", flags(row))];
    let mut settings = row.settings.join(" ");
    write!(settings, "{}--retries {}", if settings.is_empty() { "" } else { " " }, row.retries).unwrap();
    how.push(format!("`{settings}`"));
    if let Some(resolve) = row.addresses.resolve(PORT) {
        how.push(format!("`--resolve {resolve}`, and `localhost:{PORT}` in the endpoint"));
    }
    match row.keys {
        Keys::Variables => {}
        Keys::NewTokens => how.push("keys from a `credential_process` with a new token each time".into()),
        Keys::SameToken => how.push("keys from a `credential_process` with the same token each time".into()),
    }
    let how = wrapped(&how.join(", "));
    write!(page, "{how}\n| command | exit | result |\n|---|---|---|\n").unwrap();
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for work in row.works.iter().copied() {
        let [s3, oss] = DIALECTS.map(|dialect| line(&(row.seen)(work, dialect), row));
        let command = command(work);
        let both = if s3 == oss {
            vec![(command.to_owned(), s3)]
        } else {
            vec![(of(command, Dialect::S3), s3), (of(command, Dialect::Oss), oss)]
        };
        for (command, seen) in both {
            match lines.iter_mut().find(|(known, _)| *known == seen) {
                Some((_, commands)) => commands.push(command),
                None => lines.push((seen, vec![command])),
            }
        }
    }
    for (seen, commands) in lines {
        let of_all =
            |dialect| commands.len() == row.works.len() && commands[0] == of(command(row.works[0]), dialect);
        let who = match DIALECTS.into_iter().find(|dialect| of_all(*dialect)) {
            Some(dialect) => of("all", dialect),
            None if commands.len() == row.works.len() => "all".to_owned(),
            None => commands.join(", "),
        };
        writeln!(page, "| {who} | {seen} |").unwrap();
    }
}

fn command(work: Work) -> &'static str {
    match work {
        Work::File => "`cp` to a file",
        Work::Stream => "`cat`",
        Work::Folder => "`cp -r`",
        Work::Memory => "`bench peer --landing memory`",
        Work::Nowhere => "`bench peer`",
        Work::SendFile => "`cp FILE URL`",
        Work::SendStream => "`cp - URL`",
        Work::SendFolder => "`cp -r FOLDER URL`",
    }
}

fn of(command: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::S3 => format!("{command} of S3"),
        Dialect::Oss => format!("{command} of OSS"),
    }
}

/// Exit code and what is seen, as two columns.
fn line(seen: &Seen, row: &Row) -> String {
    let right = match row.fault_plan.replace_after {
        Some(_) => "the bytes of one version, old or new",
        None => "the right bytes",
    };
    let never = match (row.fault_plan.replace_after, row.spare) {
        (_, 0) => "never".to_owned(),
        (Some(_), spare) => {
            format!("only for a part that landed before the replacement, at most {spare} times in a run")
        }
        (None, spare) => {
            format!("only if a busy machine's silence looks like a stall, at most {spare} times in a run")
        }
    };
    match seen {
        Seen::Whole if row.works != DOWNLOADS => {
            "0 | the right object; a request is sent once more for each bad answer, and otherwise ".to_owned()
                + &never
        }
        Seen::WhenHit(end) if row.works != DOWNLOADS => {
            format!("0 or {} | the right object if no request is hit; otherwise {}", end.exit, words(end))
        }
        Seen::Whole => {
            format!("0 | {right}; a part is requested once more for each bad response, and otherwise {never}")
        }
        Seen::Fails(end) => format!("{} | {}", end.exit, words(end)),
        Seen::WhenHit(end) => {
            format!("0 or {} | {right} if no response is hit; otherwise {}", end.exit, words(end))
        }
        Seen::Nothing(why) => format!("| not applicable: {why}"),
    }
}

fn words(end: &End) -> String {
    let attempts = match (end.attempts.start(), end.attempts.end()) {
        (0, 0) => String::new(),
        (1, 1) => ", requested once".into(),
        (least, most) if least == most => format!(", requested {least} times"),
        (least, most) => format!(", requested {least} to {most} times"),
    };
    format!("`{}`{attempts}", end.says.join("…").replace("\n", " "))
}

/// The flags of `flatout serve` that make such a day.
fn flags(row: &Row) -> String {
    let fault_plan = &row.fault_plan;
    let mut flags: Vec<String> = fault_plan.faults.iter().map(|fault| format!("--{fault}")).collect();
    flags.extend(fault_plan.throttle.map(|rate| format!("--throttle {rate}/s")));
    flags.extend(fault_plan.qos_delay.map(|delay| format!("--qos-delay {}", delay.as_millis())));
    flags.extend(fault_plan.replace_after.map(|gets| format!("--replace-after {gets}")));
    flags.extend(fault_plan.expire_token.map(|after| format!("--expire-token {after:?}")));
    if fault_plan.clock != 0 {
        flags.push(format!("--clock {:+}s", fault_plan.clock));
    }
    flags.extend(row.total.as_ref().map(|rates| {
        let rate = |rate: u64| format!("{}KiB/s", rate >> 10);
        let then = rates.then.iter().map(|(from, then)| format!("@{from:?}:{}", rate(*then)));
        format!("--total {}{}", rate(rates.first), then.collect::<String>())
    }));
    flags.extend(row.addresses.listen(PORT).iter().map(|listen| {
        let rate = listen.rate.map_or(String::new(), |rate| format!(",rate={}KiB/s", rate >> 10));
        format!("--listen {}{rate}{}", listen.address, if listen.dead { ",dead" } else { "" })
    }));
    flags.join(" ")
}
