//! What a sync does with each name: the two trees joined, decided, and asked where they do not tell.

use std::collections::VecDeque;

use flatout_sync::decide::{Decision, Rules, Way, Why};
use flatout_sync::item::{By, Entry};
use flatout_sync::join::{Join, Joined, Which};

use super::ask::{Answer, Asked, Asker};
use super::trees::Items;
use crate::exit::Exit;
use crate::failure::Failure;

/// What is to be done with a name, in the order of names.
#[derive(Debug)]
pub enum Step {
    /// Content goes from the source to the target.
    Copy { source: Entry, why: Why },
    /// A folder that only the source has.
    MakeFolder(String),
    /// Both sides are alike.
    Same { name: String },
    /// Only the target has it.
    Extra(Entry),
    /// A folder that only the target has.
    ExtraFolder(String),
    /// It stays as it is, since one of its sides could not be read.
    Unknown { name: String },
    /// It cannot be copied for what has its name at the target.
    Blocked { name: String, by: By },
    /// The source has something there that cannot be copied.
    LeftOut { name: String, by: By },
    /// Something could not be read.
    Unread(Failure),
    /// Its two sides could not be compared.
    Unasked { name: String, why: Failure },
    /// Neither side has content there; no plan hands it out.
    Nothing { name: String },
}

/// The steps of one walk through both trees.
pub struct Plan {
    join: Join<Items, Items>,
    rules: Rules,
    asker: Asker,
    /// Steps that wait for an answer, and those behind them.
    waiting: VecDeque<Waiting>,
    folders: Folders,
    /// A folder that only the source has, until it shows whether it is empty.
    folder: Option<String>,
    held: Option<Step>,
}

/// What is done with folders for their own sake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folders {
    /// Nothing: folders come with what lies in them.
    None,
    /// The target gets the empty ones, and with deletions loses them.
    Empty,
}

enum Waiting {
    Ready(Step),
    Asked(Asked),
}

/// As many steps may wait for an answer: enough that all askers are busy.
const WAITING_MOST: usize = 512;

impl Plan {
    pub fn new(source: Items, target: Items, folders: Folders, rules: Rules, asker: Asker) -> Plan {
        let join = Join::new(source, target, rules.way == Way::Down);
        Plan { join, rules, asker, waiting: VecDeque::new(), folders, folder: None, held: None }
    }

    /// The next step, or what has to be asked for it.
    fn joined(&mut self) -> Option<Waiting> {
        let step = match self.join.next()? {
            Joined::Pair { name, source, target } => match self.rules.decide(source, target) {
                Decision::Ask { source, target, question } => {
                    return Some(Waiting::Asked(self.asker.ask(source, target, question, self.rules)));
                }
                Decision::Copy { source, why } => Step::Copy { source, why },
                Decision::MakeFolder => Step::MakeFolder(name),
                Decision::Same { .. } => Step::Same { name },
                Decision::Extra { target } => Step::Extra(target),
                Decision::ExtraFolder => Step::ExtraFolder(name),
                Decision::Unknown => Step::Unknown { name },
                Decision::Blocked { by } => Step::Blocked { name, by },
                Decision::Occupied { by } => Step::LeftOut { name, by },
                Decision::Nothing => Step::Nothing { name },
            },
            Joined::Unknown { why, .. } => Step::Unread(why),
            Joined::LeftOut { shown, why, .. } => Step::LeftOut { name: shown, by: why.into() },
            Joined::Disorder { which, name } => Step::Unread(disorder(which, &name)),
        };
        Some(Waiting::Ready(step))
    }
}

impl Iterator for Plan {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.held.is_some() {
            return self.held.take();
        }
        loop {
            let step = match (self.answered(), self.rules.way, self.folders) {
                (Some(Step::MakeFolder(_)), _, Folders::None) => continue,
                // A mark that is no folder of the target's: nothing is done with either.
                (Some(Step::Blocked { name, .. }), _, Folders::None) if name.ends_with('/') => continue,
                (Some(Step::ExtraFolder(name)), Way::Up | Way::Between, _) => Some(Step::Extra(mark(name))),
                (Some(Step::ExtraFolder(_)), Way::Down, Folders::None) => continue,
                (step, ..) => step,
            };
            // What only the target has in it makes no folder of the source's less empty.
            if let (Some(folder), Some(Step::Extra(_) | Step::ExtraFolder(_))) = (&self.folder, &step)
                && step.as_ref().and_then(Step::name).is_some_and(|name| name.starts_with(folder.as_str()))
            {
                return step;
            }
            // A folder is empty where what comes next does not lie in it.
            let name = step.as_ref().and_then(Step::name);
            let empty = self.folder.take().filter(|folder| name.is_none_or(|name| !name.starts_with(folder)));
            let step = match step {
                Some(Step::MakeFolder(name)) => {
                    self.folder = Some(name);
                    None
                }
                Some(Step::Nothing { .. }) => None,
                Some(step) => Some(step),
                None => return empty.map(Step::MakeFolder),
            };
            match (empty, step) {
                (Some(empty), step) => {
                    self.held = step;
                    return Some(Step::MakeFolder(empty));
                }
                (None, Some(step)) => return Some(step),
                (None, None) => {}
            }
        }
    }
}

impl Plan {
    /// The next step, once what had to be asked for it has been answered.
    fn answered(&mut self) -> Option<Step> {
        if self.waiting.is_empty()
            && let Some(waiting) = self.joined()
        {
            self.waiting.push_back(waiting);
        }
        let asked = match self.waiting.pop_front()? {
            Waiting::Ready(step) => return Some(step),
            Waiting::Asked(asked) => asked,
        };
        while self.waiting.len() < WAITING_MOST
            && let Some(waiting) = self.joined()
        {
            self.waiting.push_back(waiting);
        }
        Some(match asked.answer() {
            Answer::Same(source) => Step::Same { name: source.name },
            Answer::Differs(source, why) => Step::Copy { source, why },
            Answer::Unknown(source, why) => {
                Step::Unasked { name: source.name, why: Failure { exit: Exit::Incomplete, ..why } }
            }
        })
    }
}

impl Step {
    /// The name that it is about.
    pub fn name(&self) -> Option<&str> {
        match self {
            Step::Copy { source: entry, .. } | Step::Extra(entry) => Some(&entry.name),
            Step::MakeFolder(name)
            | Step::ExtraFolder(name)
            | Step::Same { name, .. }
            | Step::Unknown { name }
            | Step::Unasked { name, .. }
            | Step::Nothing { name }
            | Step::Blocked { name, .. }
            | Step::LeftOut { name, .. } => Some(name),
            Step::Unread(_) => None,
        }
    }
}

/// The object that marks a folder.
fn mark(name: String) -> Entry {
    Entry { name, size: 0, modified_ns: None, etag: None, file: None }
}

/// A directory bucket of S3 lists so.
fn disorder(which: Which, name: &str) -> Failure {
    let which = match which {
        Which::Source => "source",
        Which::Target => "target",
    };
    let failure = Failure {
        exit: Exit::Incomplete,
        kind: "network".into(),
        message: format!("list: the {which} does not list names in their order: '{name}' comes too late"),
        hint: None,
    };
    failure.with_hint("such a bucket cannot be compared: copy it by `flatout cp -r`")
}
