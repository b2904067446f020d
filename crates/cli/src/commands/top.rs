//! `flatout top`: a line for each mount, drawn again and again.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flatout_mount::{DaemonState, ExistingMount, MountHolder};
use flatout_mounting::RunningMount;
use flatout_mounting::stats::{MountStats, OriginTotals};
use flatout_settings::format_size;

use crate::args::Top;
use crate::console::{Carries, Console};
use crate::events::{DeadMount, HeldBy, HeldMount};
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::sys;

/// How often holders are looked for: that reads the open files of every process.
const LOOK_FOR_HOLDERS: Duration = Duration::from_secs(10);

pub fn run(args: &Top, console: &Console) -> Result<Exit, Failure> {
    let (ended, end) = mpsc::channel();
    let armed = console.interrupt.arm();
    armed.on_signal(move || {
        // The receiver is gone only when the command has ended.
        let _ = ended.send(());
    });
    let screen = Screen::when(!args.once && !console.is_json());
    let mut before: HashMap<u32, Snapshot> = HashMap::new();
    let mut silent = Vec::new();
    let mut holders = HashMap::new();
    loop {
        let (running, dead) = chosen(args, &mut silent)?;
        let held = held(&running, &mut holders);
        let looks: Vec<Snapshot> = running.into_iter().map(Snapshot::now).collect();
        for look in &looks {
            console.event(Carries::Lines, &look.numbers)?;
        }
        for mount in &held {
            console.event(Carries::Lines, mount)?;
        }
        for mount in &dead {
            console.event(Carries::Lines, mount)?;
        }
        let lines = table(&looks, &before, &held, &dead, screen.as_ref().map(Screen::columns));
        match &screen {
            Some(screen) => screen.draw(&lines).map_err(|error| Failure::stdout(&error))?,
            None => lines.iter().try_for_each(|line| console.answer(line))?,
        }
        console.flush()?;
        if args.once {
            return Ok(Exit::Clean);
        }
        before = looks.into_iter().map(|look| (look.numbers.pid, look)).collect();
        match end.recv_timeout(args.interval) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            // The way to end it.
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(Exit::Clean),
        }
    }
}

/// The mounts that were asked for. None is an answer, unless one was named.
fn chosen(
    args: &Top,
    silent: &mut Vec<ExistingMount>,
) -> Result<(Vec<RunningMount>, Vec<DeadMount>), Failure> {
    let mut running = flatout_mounting::running_mounts(&flatout_ambient::runtime_folders());
    let mut dead = dead(&running, silent);
    let Some(which) = &args.which else { return Ok((running, dead)) };
    // Without a slash at its end, by which the system would ask what is mounted there.
    let bare: PathBuf = Path::new(which).components().collect();
    let path = bare.canonicalize().unwrap_or(bare);
    let pid: Option<u32> = which.parse().ok();
    running.retain(|one| Some(one.stats.pid) == pid || Path::new(&one.stats.mount_point) == path);
    dead.retain(|one| Path::new(&one.mount_point) == path);
    match running.is_empty() && dead.is_empty() {
        false => Ok((running, dead)),
        true => Err(Failure::not_found(format!("top: {which}: is no mount that can be asked"))
            .with_hint("`flatout top --once` shows those that can; those of other users are theirs to see")),
    }
}

/// Mounts whose process has gone. Those that do not answer become `silent` and are not asked again: each look
/// blocks a thread.
fn dead(running: &[RunningMount], silent: &mut Vec<ExistingMount>) -> Vec<DeadMount> {
    let is_served = |one: &ExistingMount| running.iter().any(|running| running.serves(one));
    let mut dead = Vec::new();
    for standing in ExistingMount::all() {
        if is_served(&standing) || silent.contains(&standing) {
            continue;
        }
        match standing.daemon() {
            DaemonState::Alive => {}
            DaemonState::Silent => silent.push(standing),
            DaemonState::Dead => dead.push(DeadMount {
                source: standing.source().to_owned(),
                mount_point: standing.path().display().to_string(),
                remedy: standing.remedy(),
            }),
        }
    }
    dead
}

/// Mounts that are no longer mounted here, and their holders, found at most `LOOK_FOR_HOLDERS` ago.
fn held(running: &[RunningMount], known: &mut HashMap<u32, (Instant, Vec<MountHolder>)>) -> Vec<HeldMount> {
    known.retain(|_, (at, _)| at.elapsed() < LOOK_FOR_HOLDERS);
    let mut held = Vec::new();
    for one in running {
        let MountStats { pid, source, mount_point, .. } = &one.stats;
        if !known.contains_key(pid) {
            let Some(holders) = one.held_elsewhere() else { continue };
            known.insert(*pid, (Instant::now(), holders));
        }
        held.push(HeldMount {
            source: source.clone(),
            mount_point: mount_point.clone(),
            pid: *pid,
            held_by: known[pid].1.iter().map(HeldBy::from).collect(),
        });
    }
    held
}

/// Statistics and when they were read.
struct Snapshot {
    numbers: MountStats,
    at: Instant,
}

impl Snapshot {
    fn now(running: RunningMount) -> Snapshot {
        Snapshot { numbers: running.stats, at: Instant::now() }
    }

    /// How long ago it was that the statistics before were read; without any, that the mount began.
    fn seconds_since(&self, before: Option<&Snapshot>) -> f64 {
        let seconds = before.map(|before| self.at.duration_since(before.at).as_secs_f64());
        seconds.unwrap_or(self.numbers.uptime_s).max(1e-3)
    }

    fn per_second(&self, before: Option<&Snapshot>, count: fn(&MountStats) -> u64) -> f64 {
        let then = before.map_or(0, |before| count(&before.numbers));
        count(&self.numbers).saturating_sub(then) as f64 / self.seconds_since(before)
    }
}

const COLUMNS: [&str; 13] = [
    "PID", "IN/s", "OUT/s", "REQ/s", "HITS", "WAIT", "FLIGHT", "RETRIES", "LIMIT", "MEMORY", "AMPL", "CPU",
    "MOUNT",
];

type Row = [String; COLUMNS.len()];

/// Columns that a narrow terminal leaves out, in this order, until `NAME_COLUMNS` of the mount's name fit.
const LEFT_OUT: [&str; 5] = ["RETRIES", "WAIT", "AMPL", "CPU", "REQ/s"];
const NAME_COLUMNS: usize = 24;

/// Mounts that are served, below them those held elsewhere, then the dead ones.
fn table(
    looks: &[Snapshot],
    before: &HashMap<u32, Snapshot>,
    held: &[HeldMount],
    dead: &[DeadMount],
    columns: Option<usize>,
) -> Vec<String> {
    let mut lines = if looks.is_empty() { Vec::new() } else { served(looks, before, columns) };
    lines.extend(looks.iter().filter(|look| look.numbers.names.attribute_heads > 0).map(|look| {
        let MountStats { source, mount_point, names, .. } = &look.numbers;
        let now = look.per_second(before.get(&look.numbers.pid), |numbers| numbers.names.attribute_heads);
        let what = format!("{} HEADs for modes, owners, times and links, {now:.0}/s", names.attribute_heads);
        one_line(&format!("attributes: {source} on {mount_point}: {what}"))
    }));
    lines.extend(looks.iter().filter_map(|look| {
        let MountStats { source, mount_point, staging, .. } = &look.numbers;
        let staging = staging.as_ref().filter(|staging| staging.pending_now > 0)?;
        let first = staging.pending.first().map_or("", String::as_str);
        let more = match staging.pending_now - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let bytes = format_size(staging.bytes_now);
        let what = format!("{first}{more}: not uploaded yet, and tried again");
        Some(one_line(&format!("staged: {source} on {mount_point}: {what}; {bytes} are on the disk")))
    }));
    lines.extend(held.iter().map(|mount| {
        let HeldMount { source, mount_point, pid, held_by } = mount;
        let says: Vec<&str> = held_by.iter().map(|holder| holder.says.as_str()).collect();
        let says = says.join("; ");
        one_line(&format!(
            "held: {source} on {mount_point}: no longer mounted here, but {says}: process {pid} serves it until that ends"
        ))
    }));
    lines.extend(dead.iter().map(|mount| {
        let DeadMount { source, mount_point, remedy } = mount;
        one_line(&format!("dead: {source} on {mount_point}: its process has gone: `{remedy}` clears it"))
    }));
    if lines.is_empty() {
        lines.push("no mounts".to_owned());
    }
    lines
}

/// A heading and a line for each; rates since the look before, or since the mount began where there was none.
fn served(looks: &[Snapshot], before: &HashMap<u32, Snapshot>, columns: Option<usize>) -> Vec<String> {
    let rows: Vec<Row> = looks.iter().map(|look| row(look, before.get(&look.numbers.pid))).collect();
    let heading = COLUMNS.map(str::to_owned);
    let all = || std::iter::once(&heading).chain(&rows);
    let width = |at: usize| all().map(|row| row[at].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut shown: Vec<usize> = (0..COLUMNS.len()).collect();
    for name in LEFT_OUT {
        let ahead: usize = shown[..shown.len() - 1].iter().map(|at| widths[*at] + 2).sum();
        if columns.is_some_and(|columns| ahead + NAME_COLUMNS > columns) {
            shown.retain(|at| COLUMNS[*at] != name);
        }
    }
    let line = |row: &Row| {
        let cell = |at: &usize| match at + 1 == COLUMNS.len() {
            true => one_line(&row[*at]),
            false => format!("{:>1$}", row[*at], widths[*at]),
        };
        shown.iter().map(cell).collect::<Vec<String>>().join("  ")
    };
    all().map(line).collect()
}

fn row(look: &Snapshot, before: Option<&Snapshot>) -> Row {
    let now = &look.numbers;
    let nothing = MountStats::default();
    let then = before.map_or(&nothing, |before| &before.numbers);
    let rate = |count| format_size(look.per_second(before, count) as u64);
    let hits = now.reads.hits.saturating_sub(then.reads.hits);
    let reads = hits + now.reads.waits.saturating_sub(then.reads.waits);
    let share =
        if reads == 0 { "-".to_owned() } else { format!("{:.0}%", 100.0 * hits as f64 / reads as f64) };
    let cpu = (now.process.cpu_seconds - then.process.cpu_seconds) / look.seconds_since(before);
    [
        now.pid.to_string(),
        rate(|numbers| numbers.bytes.fetched),
        rate(|numbers| numbers.bytes.served),
        format!("{:.0}", look.per_second(before, |numbers| numbers.requests.total)),
        share,
        now.requests.waiting_now.to_string(),
        format!("{}/{}", now.origin.in_flight_now, now.origin.parallel_now),
        now.origin.retries.to_string(),
        limit(&now.origin, &then.origin),
        format_size(now.process.resident_bytes_now),
        now.bytes.amplification.map_or("-".to_owned(), |times| format!("{times:.2}")),
        format!("{:.0}%", 100.0 * cpu),
        format!("{} on {}", now.source, now.mount_point),
    ]
}

/// What held the speed back longest since then.
fn limit(now: &OriginTotals, then: &OriginTotals) -> String {
    let since = |name: &String| now.limited_seconds[name] - then.limited_seconds.get(name).unwrap_or(&0.0);
    let longest = now.limited_seconds.keys().max_by(|one, other| since(one).total_cmp(&since(other)));
    longest.filter(|name| since(name) > 0.0).map_or("-".to_owned(), Clone::clone)
}

/// A terminal on which lines are drawn over one another; as it was when this is dropped.
struct Screen;

impl Screen {
    /// Where standard output is a terminal.
    fn when(wanted: bool) -> Option<Screen> {
        if !wanted || !io::stdout().is_terminal() {
            return None;
        }
        // Another screen, without the cursor.
        let _ = put("\x1b[?1049h\x1b[?25l");
        Some(Screen)
    }

    /// How wide it is now.
    fn columns(&self) -> usize {
        use std::os::fd::AsFd;
        sys::columns(io::stdout().as_fd()).map_or(80, usize::from)
    }

    fn draw(&self, lines: &[String]) -> io::Result<()> {
        let columns = self.columns();
        let mut page = "\x1b[H".to_owned();
        for line in lines {
            page.extend(line.chars().take(columns));
            page += "\x1b[K\r\n";
        }
        page += "\x1b[J";
        put(&page)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = put("\x1b[?25h\x1b[?1049l");
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(served: u64, hits: u64, waits: u64, at: Instant) -> Snapshot {
        let mut numbers = MountStats {
            pid: 7,
            supervisor_pid: None,
            source: "s3://b".into(),
            mount_point: "/mnt".into(),
            ..MountStats::default()
        };
        (numbers.bytes.served, numbers.uptime_s) = (served, 2.0);
        (numbers.reads.hits, numbers.reads.waits) = (hits, waits);
        Snapshot { numbers, at }
    }

    #[test]
    fn rates_are_those_since_the_look_before() {
        let start = Instant::now();
        let first = look(8 << 20, 1, 1, start);
        let lines = table(std::slice::from_ref(&first), &HashMap::new(), &[], &[], None);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("PID  ") && lines[0].ends_with("MOUNT"), "{lines:?}");
        assert!(lines[1].contains("4MiB") && lines[1].contains("50%"), "since it began: {lines:?}");
        assert!(lines[1].ends_with("s3://b on /mnt"), "{lines:?}");
        let second = look(9 << 20, 4, 2, start + Duration::from_secs(1));
        let lines = table(&[second], &HashMap::from([(7, first)]), &[], &[], None);
        assert!(lines[1].contains(" 1MiB") && lines[1].contains("75%"), "{lines:?}");
        assert_eq!(table(&[], &HashMap::new(), &[], &[], None), ["no mounts"]);
    }

    #[test]
    fn what_is_dead_stands_below_with_its_remedy() {
        let dead = DeadMount {
            source: "s3://b".into(),
            mount_point: "/mnt/my x".into(),
            remedy: "flatout umount '/mnt/my x'".into(),
        };
        let line = "dead: s3://b on /mnt/my x: its process has gone: `flatout umount '/mnt/my x'` clears it";
        assert_eq!(table(&[], &HashMap::new(), &[], std::slice::from_ref(&dead), Some(80)), [line]);
        let lines = table(&[look(1, 1, 1, Instant::now())], &HashMap::new(), &[], &[dead], None);
        assert_eq!((lines.len(), lines[2].as_str()), (3, line));
    }

    #[test]
    fn what_attributes_ask_has_a_line() {
        let start = Instant::now();
        let asked = |heads, at| {
            let mut look = look(1, 1, 1, at);
            look.numbers.names.attribute_heads = heads;
            look
        };
        let lines = |look, before| table(&[look], &before, &[], &[], None);
        assert_eq!(lines(asked(0, start), HashMap::new()).len(), 2);
        let first = asked(100, start);
        let line = "attributes: s3://b on /mnt: 400 HEADs for modes, owners, times and links, 300/s";
        let shown = lines(asked(400, start + Duration::from_secs(1)), HashMap::from([(7, first)]));
        assert_eq!(shown[2], line);
    }

    #[test]
    fn a_narrow_terminal_shows_what_is_mounted() {
        let look = look(8 << 20, 1, 1, Instant::now());
        let at = |columns| table(std::slice::from_ref(&look), &HashMap::new(), &[], &[], columns);
        let headings = |columns| at(columns)[0].split_whitespace().count();
        assert_eq!((headings(None), headings(Some(200))), (COLUMNS.len(), COLUMNS.len()));
        assert!(
            (COLUMNS.len() - LEFT_OUT.len()..COLUMNS.len()).contains(&headings(Some(80))),
            "{:?}",
            at(Some(80))
        );
        assert!(
            at(Some(80))[1].find("s3://b").is_some_and(|at| at + NAME_COLUMNS <= 80),
            "{:?}",
            at(Some(80))
        );
        assert_eq!(headings(Some(1)), COLUMNS.len() - LEFT_OUT.len());
    }

    #[test]
    fn what_limits_is_what_did_so_longest_since_the_look_before() {
        let origin = |seconds: &[(&str, f64)]| OriginTotals {
            limited_seconds: seconds.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds)).collect(),
            ..OriginTotals::default()
        };
        let (nothing, first) = (origin(&[]), origin(&[("ramp", 3.0), ("network", 1.0)]));
        let second = origin(&[("cpu", 0.5), ("ramp", 3.0), ("network", 2.0)]);
        assert_eq!(limit(&first, &nothing), "ramp");
        assert_eq!(limit(&second, &first), "network");
        assert_eq!(limit(&second, &second), "-");
        assert_eq!(limit(&nothing, &nothing), "-");
    }
}
