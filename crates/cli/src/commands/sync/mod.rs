//! `flatout sync`: makes one tree like another. docs/life-of-a-sync.md walks the road.

mod ask;
mod carry;
mod plan;
mod remove;
mod steps;
mod sums;
mod tell;
mod trees;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flatout_engine::{Client, Dialect, Folder};
use flatout_sync::decide::{Compare, Rules, Way};

use self::ask::Asker;
use self::carry::{Carrier, Later};
use self::plan::{Folders, Plan, Step};
use self::steps::Steps;
use self::sums::Sums;
use self::tell::Telling;
use self::trees::{Found, Tree};
use crate::args::Sync;
use crate::commands::repeats::{counted, grouped};
use crate::console::{Carries, Console};
use crate::events::SyncSummary;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::stored_as::options;
use crate::{origin, outages};

pub fn run(args: &Sync, console: &Console) -> Result<Exit, Failure> {
    let (source, target) = (Tree::parse("sync", &args.source)?, Tree::parse("sync", &args.target)?);
    let way = check(args, &source, &target)?;
    let options = options(&args.stored_as, None)?;
    let dialects: Vec<Dialect> = [&source, &target]
        .into_iter()
        .filter_map(|tree| match tree {
            Tree::Folder(_) => None,
            Tree::Objects(objects) => Some(Dialect::of(&objects.location)),
        })
        .collect();
    let client = origin::client(console, &args.knobs, &dialects)?;
    outages::tell(&client, console, Carries::Lines);
    let sums = match (&source, &target) {
        (Tree::Folder(folder), _) | (_, Tree::Folder(folder)) if args.checksum => {
            Sums::open(flatout_ambient::cache_folder(), folder)
        }
        _ => Sums::default(),
    };
    let asker = Asker::new(client.clone(), source.clone(), target.clone(), sums);
    let root = root(&source);
    let sync = Trees {
        args,
        client: &client,
        source: &source,
        root,
        target: &target,
        way,
        asker: &asker,
        found: Found::default(),
    };
    let mut telling = Telling::new(args, console, &source, &target, way);
    // Before anything is made: a tree that cannot be read leaves no folder behind.
    let steps = sync.steps(compare(args), console)?;
    let later = match args.dry_run {
        true => sync.only_say(steps, &mut telling)?,
        false => {
            let folder = match &target {
                Tree::Folder(path) => Some(Folder::open(path)?),
                Tree::Objects(_) => None,
            };
            let carrier = Carrier { client: &client, source: &source, target: &target, options, folder };
            carrier.carry(steps, &mut telling)?
        }
    };
    asker.keep_sums(telling.is_whole());
    let without_sums = asker.without_sums();
    if without_sums > 0 {
        console.warn(&format!(
            "{} compared by time: there is no checksum that both sides state",
            counted(without_sums, "name")
        ));
    }
    sync.end(later, &mut telling)?;
    origin::remember_of(console, &client);
    telling.conclude()
}

/// What can be refused before anything is asked.
fn check(args: &Sync, source: &Tree, target: &Tree) -> Result<Way, Failure> {
    if let Some(etag) = &args.stored_as.if_match {
        let failure = Failure::usage(format!("--if-match {etag}: no two of many objects have one ETag"));
        return Err(failure.with_hint("leave it out, or copy one object by `flatout cp`"));
    }
    let way = match (source, target) {
        (Tree::Folder(_), Tree::Objects(_)) => Way::Up,
        (Tree::Objects(_), Tree::Folder(_)) => Way::Down,
        (Tree::Objects(_), Tree::Objects(_)) => Way::Between,
        (Tree::Folder(_), Tree::Folder(_)) => {
            let failure = Failure::usage("sync: one side has to be a URL, and both are paths");
            return Err(
                failure.with_hint("write s3://BUCKET/PREFIX or oss://BUCKET/PREFIX; rsync syncs folders")
            );
        }
    };
    if way == Way::Down && !args.stored_as.is_empty() {
        let failure = Failure::usage("sync: options of an object are for uploads and copies");
        return Err(failure.with_hint("leave out --content-type and the like"));
    }
    if way == Way::Between && args.exact_timestamps {
        let failure = Failure::usage("sync: --exact-timestamps: a copy of an object has a time of its own");
        return Err(failure.with_hint("leave it out, or compare by --checksum"));
    }
    if let (Tree::Objects(from), Tree::Objects(to)) = (source, target) {
        let is_one_bucket =
            (from.location.scheme(), from.location.bucket()) == (to.location.scheme(), to.location.bucket());
        let (from, to) = (from.location.key(), to.location.key());
        if is_one_bucket && (from.starts_with(to) || to.starts_with(from)) {
            let failure =
                Failure::usage(format!("sync: {}: one of the two lies within the other", target.shown()));
            return Err(failure.with_hint("name two prefixes that lie side by side"));
        }
    }
    Ok(way)
}

fn compare(args: &Sync) -> Compare {
    match args {
        Sync { size_only: true, .. } => Compare::Size,
        Sync { exact_timestamps: true, .. } => Compare::ExactTime,
        Sync { checksum: true, .. } => Compare::Content,
        _ => Compare::SizeAndTime,
    }
}

/// Device and inode of a folder.
pub fn root(tree: &Tree) -> Option<(u64, u64)> {
    match tree {
        Tree::Folder(path) => path.metadata().ok().map(|found| (found.dev(), found.ino())),
        Tree::Objects(_) => None,
    }
}

/// What both walks of the trees share.
struct Trees<'a> {
    args: &'a Sync,
    client: &'a Arc<Client>,
    source: &'a Tree,
    /// What the source's path led to at the beginning.
    root: Option<(u64, u64)>,
    target: &'a Tree,
    way: Way,
    asker: &'a Asker,
    found: Found,
}

impl Trees<'_> {
    /// A walk through both trees, from the beginning.
    fn steps(&self, compare: Compare, console: &Console) -> Result<Steps, Failure> {
        let source = trees::source(self.args, self.client, self.source, self.target, &self.found)?;
        let target = trees::target(self.args, self.client, self.target, self.source)?;
        let ahead_s = self.client.origin_ahead_s().unwrap_or(0);
        let rules = Rules { way: self.way, compare, target_ahead_ns: i128::from(ahead_s) * 1_000_000_000 };
        let folders = if self.args.empty_folders { Folders::Empty } else { Folders::None };
        let plan = Plan::new(source, target, folders, rules, self.asker.clone());
        Steps::of(plan, console.interrupt.clone())
    }

    fn only_say(&self, steps: Steps, telling: &mut Telling<'_>) -> Result<Later, Failure> {
        let mut later = Later::default();
        for step in steps {
            match later.note(step) {
                Some(Step::Copy { source, why }) => telling.would_copy(&source.name, source.size, why)?,
                Some(Step::MakeFolder(name)) => telling.would_make(&name)?,
                Some(step) => {
                    telling.summary.unchanged += u64::from(matches!(step, Step::Same { .. }));
                    telling.on_step(step)?;
                }
                None => {}
            }
        }
        if telling.console.interrupt.raised() {
            telling.failures.of_all(&Failure::interrupted("sync: interrupted"));
        }
        Ok(later)
    }

    /// Deletes what is extra, where that is asked for and everything is known.
    fn end(&self, later: Later, telling: &mut Telling<'_>) -> Result<(), Failure> {
        let Later { extras, has_more, extra_count } = later;
        if telling.is_whole() && self.is_missing(extra_count) {
            telling.failures.of_all(&self.nothing_there());
            return Ok(());
        }
        if extras.is_empty() {
            return Ok(());
        }
        if !self.args.delete {
            telling.summary.extra = extra_count;
            return Ok(());
        }
        if telling.console.interrupt.raised() || !telling.is_whole() {
            let why = match telling.is_unknown {
                true => "not all of both trees could be read",
                false => "not everything was copied",
            };
            telling.keep_extras(extra_count, why);
            return Ok(());
        }
        if root(self.source) != self.root {
            telling.failures.of_all(&self.exchanged());
            telling.keep_extras(extra_count, "the source is another folder than at the beginning");
            return Ok(());
        }
        if let Some(most) = self.args.max_delete.filter(|most| extra_count > *most) {
            telling.summary.extra = extra_count;
            let why = format!(
                "sync: {}: {} to delete, which is more than --max-delete {most}: none is deleted",
                self.target.shown(),
                grouped(extra_count)
            );
            let failure = Failure { exit: Exit::Failed, ..Failure::usage(why) };
            let hint = "--dry-run with a larger --max-delete shows them; then allow as many";
            telling.failures.of_all(&failure.with_hint(hint));
            return Ok(());
        }
        let folder = match (self.target, self.args.dry_run) {
            (Tree::Folder(path), false) => Some(Folder::open(path)?),
            _ => None,
        };
        let removal = remove::Removal {
            client: self.client,
            source: self.source,
            target: self.target,
            filters: &self.args.filters,
            folder,
            root: self.root,
            most: extra_count,
            dry_run: self.args.dry_run,
        };
        let before = telling.summary.failed + telling.summary.unknown;
        let is_same_source = match has_more {
            false => removal.remove(extras.into_iter(), telling)?,
            // More than were kept in memory: both trees are walked again, which makes what is known newer,
            // too. Nothing has to be asked for that.
            true => removal.remove_of_steps(self.steps(Compare::Size, telling.console)?, telling)?,
        };
        if !is_same_source {
            telling.failures.of_all(&self.exchanged());
        }
        if !self.args.dry_run {
            let SyncSummary { deleted, failed, unknown, .. } = telling.summary;
            let ended = deleted + failed + unknown - before;
            telling.summary.extra = extra_count.saturating_sub(ended);
        }
        Ok(())
    }

    /// Whether the source is most likely a mistake: it has nothing, and all of the target would go, or it is
    /// a prefix that no key has.
    fn is_missing(&self, extra_count: u64) -> bool {
        let empties = self.args.delete && extra_count > 0 && !self.found.is_wanted.load(Ordering::Relaxed);
        let is_nowhere =
            matches!(self.source, Tree::Objects(_)) && !self.found.exists.load(Ordering::Relaxed);
        self.args.max_delete.is_none() && (empties || is_nowhere)
    }

    /// A disk that was unmounted in the meantime has names no more, which makes all others extra.
    fn exchanged(&self) -> Failure {
        let message = format!("sync: {}: it is not the folder that it was", self.source.shown());
        let failure = Failure { exit: Exit::Incomplete, ..Failure::not_found(message) };
        failure.with_hint("mount it or put it back, and run it again")
    }

    fn nothing_there(&self) -> Failure {
        let failure = Failure::not_found(format!("sync: {}: there is nothing to copy", self.source.shown()));
        failure.with_hint(match self.args.delete {
            true => "--delete would empty the target: where that is meant, say how many by --max-delete N",
            false => "check the name, and --include and --exclude; a single object is copied by `flatout cp`",
        })
    }
}
