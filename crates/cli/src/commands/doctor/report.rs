//! What a doctor writes down: findings by section, aligned and wrapped for people, an event each for
//! programs.

use std::io;
use std::os::fd::AsFd;

use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::sys;

use super::finding::{Finding, Level, worst};

/// Wider lines are hard to read, narrower ones hold too few words.
const COLUMNS: std::ops::RangeInclusive<usize> = 60..=100;
/// Where there is no terminal.
const COLUMNS_USUAL: usize = 80;
/// The level, and as much as the longest topic takes.
const INDENT: usize = 8 + 15;

/// The report: what has been found is shown at once, as what comes next may take seconds.
pub struct DoctorReport<'a> {
    console: &'a Console,
    columns: usize,
    findings: Vec<Finding>,
}

impl<'a> DoctorReport<'a> {
    pub fn new(console: &'a Console) -> DoctorReport<'a> {
        let columns = sys::columns(io::stdout().as_fd()).map_or(COLUMNS_USUAL, usize::from);
        let columns = columns.clamp(*COLUMNS.start(), *COLUMNS.end());
        DoctorReport { console, columns, findings: Vec::new() }
    }

    /// Adds what was found about one area. When quiet, what is good is left out.
    pub fn section(&mut self, area: &'static str, findings: Vec<Finding>) -> Result<(), Failure> {
        if !findings.is_empty() {
            self.console.say(&format!("{}{}", area[..1].to_uppercase(), &area[1..]))?;
        }
        for finding in &findings {
            for line in lines(finding, self.columns) {
                match finding.level {
                    Level::Good => self.console.say(&line)?,
                    Level::Note | Level::Bad => self.console.answer(&line)?,
                }
            }
            self.console.event(Carries::Lines, &event(area, finding))?;
        }
        self.findings.extend(findings);
        self.console.flush()
    }

    /// The last line, and how the run ends.
    pub fn finish(self) -> Result<Exit, Failure> {
        let count = |level| self.findings.iter().filter(|finding| finding.level == level).count();
        let (good, notes, bad) = (count(Level::Good), count(Level::Note), count(Level::Bad));
        let exit = worst(&self.findings);
        let notes_shown = if notes == 1 { "1 note".to_owned() } else { format!("{notes} notes") };
        self.console.say(&format!("{bad} bad, {notes_shown}, {good} good"))?;
        let summary = events::DoctorSummary { action: "doctor", good, notes, bad, exit: exit.code() };
        self.console.event(Carries::Lines, &summary)?;
        Ok(exit)
    }
}

fn event<'a>(area: &'static str, finding: &'a Finding) -> events::Finding<'a> {
    events::Finding {
        area,
        topic: finding.topic,
        level: finding.level.name().trim_end(),
        found: &finding.found,
        details: &finding.details,
        means: Some(finding.means.as_str()).filter(|means| !means.is_empty()),
        advice: finding.advice.as_deref(),
        facts: &finding.facts,
    }
}

/// `  note  TOPIC  found`, and below it details, meaning and advice.
fn lines(finding: &Finding, columns: usize) -> Vec<String> {
    let width = columns - INDENT;
    let mut lines = wrapped(&finding.found, "", width);
    lines.extend(finding.details.iter().flat_map(|detail| wrapped(detail, "  ", width)));
    lines.extend(wrapped(&finding.means, "", width));
    lines.extend(finding.advice.iter().flat_map(|advice| wrapped(advice, "-> ", width)));
    let first = format!("  {}  {:15}", finding.level.name(), finding.topic);
    let starts = std::iter::once(first).chain(std::iter::repeat(" ".repeat(INDENT)));
    starts.zip(lines).map(|(start, line)| format!("{start}{line}")).collect()
}

/// Words in lines of at most `width`, the first behind `mark`, the others as far in; a longer word has a line
/// to itself.
fn wrapped(text: &str, mark: &str, width: usize) -> Vec<String> {
    let text = one_line(text);
    let mut lines = Vec::new();
    let mut line = mark.to_owned();
    let margin = " ".repeat(mark.len());
    for word in text.split(' ') {
        let begun = line.len() > mark.len();
        if begun && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, margin.clone()));
        } else if begun {
            line.push(' ');
        }
        line.push_str(word);
    }
    if line.len() > mark.len() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_fits_into_its_columns() {
        let finding = Finding::note("open files", "1024 (at most 524288)")
            .details(vec!["10.0.0.1:443  0.21 ms".into()])
            .means("many files at --parallel 500 need up to 1064 of them, which is more than there are")
            .advise("ulimit -n 4096");
        assert_eq!(
            lines(&finding, 80),
            [
                "  note  open files     1024 (at most 524288)",
                "                         10.0.0.1:443  0.21 ms",
                "                       many files at --parallel 500 need up to 1064 of them,",
                "                       which is more than there are",
                "                       -> ulimit -n 4096",
            ]
        );
        let long = Finding::bad("access", format!("{} x\u{1b}[31m", "y".repeat(100)));
        let shown = lines(&long, 60);
        assert_eq!(shown.len(), 2);
        assert!(shown[0].starts_with("  bad   access") && shown[1].ends_with("x\\u{1b}[31m"), "{shown:?}");
    }

    #[test]
    fn words_keep_their_line() {
        let check = |text: &str, mark: &str, expected: &[&str]| assert_eq!(wrapped(text, mark, 10), expected);
        check("", "", &[]);
        check("one two three", "", &["one two", "three"]);
        check("one two three", "-> ", &["-> one two", "   three"]);
        check("abcdefghijklmn op", "-> ", &["-> abcdefghijklmn", "   op"]);
    }
}
