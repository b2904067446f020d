//! The manual pages, one for each command, from what `--help` says, and what only a manual has room for.

use clap::{Arg, Command, CommandFactory};
use clap_mangen::roff::{Inline, Roff, bold, roman};
use flatout_settings::KNOBS;

use crate::args::Line;

/// When their text last changed by more than a word: a manual page has to have a date, and a build none of
/// its own.
const CHANGED: &str = "2026-11-22";

/// A manual page.
pub struct ManualPage {
    /// Of the file: `flatout-cp.1`.
    pub name: String,
    /// In the language of man(7).
    pub text: String,
}

/// All of them, that of `flatout` first. Hidden commands have none.
pub fn pages() -> Vec<ManualPage> {
    let mut top = Line::command().disable_help_subcommand(true);
    top.build();
    let mut commands = Vec::new();
    collect(&top, &mut commands);
    commands.iter().map(|command| page(command, &commands)).collect()
}

fn collect(command: &Command, commands: &mut Vec<Command>) {
    commands.push(command.clone());
    for each in visible(command) {
        collect(each, commands);
    }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

fn page(command: &Command, all: &[Command]) -> ManualPage {
    let name = title(command);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut head = Roff::new();
    let version = format!("flatout {}", env!("CARGO_PKG_VERSION"));
    head.control("TH", [name.to_uppercase().as_str(), "1", CHANGED, &version, "Flatout"]);
    head.control("SH", ["NAME"]);
    head.text([roman(format!("{name} - {about}"))]);
    head.control("SH", ["SYNOPSIS"]);
    head.text([bold(command.get_bin_name().unwrap_or("flatout")), roman(usage(command))]);
    head.control("SH", ["DESCRIPTION"]);
    head.text([roman(format!("{about}."))]);
    for paragraph in paragraphs(&below).filter(|each| !each.is_examples() && !each.is_exit_codes()) {
        paragraph.render(&mut head);
    }
    commands(&mut head, command);
    arguments(&mut head, command);
    let mut tail = Roff::new();
    for paragraph in paragraphs(&below).filter(Paragraph::is_examples) {
        tail.control("SH", ["EXAMPLES"]);
        verbatim(&mut tail, paragraph.lines());
    }
    exit_status(&mut tail);
    if has_knobs(command) {
        environment(&mut tail, name == "flatout");
        files(&mut tail);
    }
    see_also(&mut tail, command, all);
    // Each piece opens with the same definition of an apostrophe: once is enough.
    let preamble = Roff::new().render();
    let body = [head.render(), flags(command), tail.render()].concat().replace(&preamble, "");
    ManualPage { name: format!("{name}.1"), text: preamble + &body }
}

fn title(command: &Command) -> String {
    command.get_bin_name().unwrap_or("flatout").replace(' ', "-")
}

/// What follows the name: `[OPTIONS] <SRC> <DST>`.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let name = command.get_bin_name().unwrap_or("flatout");
    usage.trim_start_matches("Usage: ").trim_start_matches(name).to_owned()
}

/// Itself, or one of its commands.
fn has_knobs(command: &Command) -> bool {
    let knob = |arg: &Arg| flatout_settings::knob(arg.get_id().as_str()).is_some();
    command.get_arguments().any(knob) || visible(command).any(has_knobs)
}

fn commands(roff: &mut Roff, command: &Command) {
    for (at, each) in visible(command).enumerate() {
        if at == 0 {
            roff.control("SH", ["COMMANDS"]);
        }
        roff.control("TP", []);
        roff.text(reference(each));
        roff.text([roman(each.get_about().map(ToString::to_string).unwrap_or_default())]);
    }
}

fn arguments(roff: &mut Roff, command: &Command) {
    for (at, arg) in command.get_positionals().filter(|arg| !arg.is_hide_set()).enumerate() {
        if at == 0 {
            roff.control("SH", ["ARGUMENTS"]);
        }
        roff.control("TP", []);
        roff.text([bold(arg.to_string())]);
        let choices = arg.get_possible_values();
        let choices: Vec<&str> = choices.iter().map(|choice| choice.get_name()).collect();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        match choices.is_empty() {
            true => roff.text([roman(help)]),
            false => roff.text([roman(format!("{help}: {}", choices.join(", ")))]),
        };
    }
}

/// All that begins with a dash, under the headings of the help.
fn flags(command: &Command) -> String {
    let flags = command.clone().mut_args(|arg| match arg.is_positional() {
        true => arg.hide(true),
        false => arg,
    });
    let mut text = Vec::new();
    clap_mangen::Man::new(flags).render_options_section(&mut text).expect("memory takes what is written");
    String::from_utf8(text).expect("what was text stays text")
}

fn exit_status(roff: &mut Roff) {
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in [
        (
            "0",
            "Everything asked for is done; a server was ended by a signal, or a mount; who read the output has had enough.",
        ),
        (
            "1",
            "Something asked for did not happen: it is not there, is broken, changed, or could not be reached or written.",
        ),
        ("2", "Everything else is done, and something was left out, with a warning."),
        ("3", "A listing broke off: what there is to do is not known to its end."),
        ("4", "Usage: the command line, a variable, the config file or a URL is wrong."),
        ("5", "The origin refuses access, or there are no keys to ask with."),
        ("6", "The origin kept asking for less until the retries ran out."),
        ("130", "Interrupted by a signal."),
    ] {
        roff.control("TP", []);
        roff.text([bold(code)]);
        roff.text([roman(meaning)]);
    }
}

/// The variables: all of them in flatout(1), what they are elsewhere.
fn environment(roff: &mut Roff, all: bool) {
    roff.control("SH", ["ENVIRONMENT"]);
    if !all {
        roff.text([
            roman("Flags that name a variable take their value from it where they are not given. Other variables stand in "),
            bold("flatout"),
            roman("(1)."),
        ]);
        return;
    }
    let mut variable = |name: &str, meaning: &str| {
        roff.control("TP", []);
        roff.text([bold(name)]);
        roff.text([roman(meaning)]);
    };
    variable("FLATOUT_CONFIG", "The config file, in place of ~/.config/flatout/config.toml.");
    for knob in KNOBS {
        variable(&knob.env(), &format!("--{}: {}.", knob.name, knob.doc));
    }
    variable(
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
        "Keys for s3://; other variables of AWS's (AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL_S3, AWS_CA_BUNDLE, those of \
         roles and containers) mean what they mean to its own tools.",
    );
    variable(
        "OSS_ACCESS_KEY_ID, OSS_ACCESS_KEY_SECRET, OSS_SESSION_TOKEN",
        "Keys for oss://; ALIBABA_CLOUD_ACCESS_KEY_ID and its kin, OSS_ENDPOINT and OSS_REGION are read too.",
    );
    variable("HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY", "Proxies, in capital or small letters.");
}

fn files(roff: &mut Roff) {
    roff.control("SH", ["FILES"]);
    for (path, meaning) in [
        ("~/.config/flatout/config.toml", "Settings and profiles; flatout config path says where it is."),
        ("~/.aws/config, ~/.aws/credentials", "Keys, roles, region and endpoint for s3://."),
        ("~/.aliyun/config.json, ~/.ossutilconfig", "Keys, region and endpoint for oss://."),
    ] {
        roff.control("TP", []);
        roff.text([Inline::Italic(path.to_owned())]);
        roff.text([roman(meaning)]);
    }
}

/// Its neighbours: the one above, those below, and those beside it.
fn see_also(roff: &mut Roff, command: &Command, all: &[Command]) {
    roff.control("SH", ["SEE ALSO"]);
    let above = |title: &str| title.rsplit_once('-').map(|(above, _)| above.to_owned());
    let own = title(command);
    let near = |other: &&Command| {
        let title = title(other);
        title != own
            && (above(&own).as_ref() == Some(&title)
                || above(&title) == above(&own)
                || above(&title).as_ref() == Some(&own))
    };
    let mut line = Vec::new();
    for (at, other) in all.iter().filter(near).enumerate() {
        if at > 0 {
            line.push(roman(", "));
        }
        line.extend(reference(other));
    }
    roff.text(line);
}

fn reference(command: &Command) -> Vec<Inline> {
    vec![bold(title(command)), roman("(1)")]
}

/// A piece of the text below the flags (help.rs).
struct Paragraph<'a>(&'a str);

fn paragraphs(text: &str) -> impl Iterator<Item = Paragraph<'_>> {
    text.split("\n\n").filter(|piece| !piece.is_empty()).map(Paragraph)
}

impl<'a> Paragraph<'a> {
    fn is_examples(&self) -> bool {
        self.0.starts_with("Examples:")
    }

    fn is_exit_codes(&self) -> bool {
        self.0.starts_with("Exit codes:")
    }

    /// Those that stand as they are.
    fn lines(&self) -> impl Iterator<Item = &'a str> {
        self.0.lines().filter_map(|line| line.strip_prefix("  "))
    }

    fn render(&self, roff: &mut Roff) {
        roff.control("PP", []);
        match self.0.starts_with("  ") {
            true => verbatim(roff, self.lines()),
            false => {
                roff.text([roman(self.0)]);
            }
        }
    }
}

fn verbatim<'a>(roff: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    roff.control("RS", ["4"]);
    roff.control("nf", []);
    for line in lines {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
    roff.control("RE", []);
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatout_settings::Group;

    #[test]
    fn every_command_has_a_page_with_all_its_sections() {
        let pages = pages();
        let text = |name: &str| &pages.iter().find(|page| page.name == name).expect(name).text;
        assert_eq!(pages[0].name, "flatout.1");
        for section in
            ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"]
        {
            for name in ["flatout.1", "flatout-cp.1", "flatout-bench-get.1", "flatout-config.1"] {
                assert!(
                    text(name).contains(&format!("\n.SH {section}\n"))
                        || text(name).contains(&format!("\n.SH \"{section}\"\n")),
                    "{name}: {section}"
                );
            }
        }
        for knob in KNOBS {
            let (flag, variable) = (format!("--{}", knob.name).replace('-', "\\-"), knob.env());
            let page = if knob.group == Group::Mount { "flatout-mount.1" } else { "flatout-cp.1" };
            assert!(text(page).contains(&flag), "{flag}");
            assert!(text("flatout.1").contains(&variable), "{variable}");
        }
        assert!(text("flatout-cp.1").contains("\n.SH SELECTION\n") && text("flatout-cp.1").contains("<DST>"));
        assert!(text("flatout-bench.1").contains("flatout\\-bench\\-sweep"));
    }

    #[test]
    fn hidden_commands_have_none() {
        for page in pages() {
            assert!(!page.name.contains("peer") && !page.name.contains("__"), "{}", page.name);
            assert!(!page.text.contains("__drain") && !page.text.contains("bench\\-peer"), "{}", page.name);
        }
    }

    #[test]
    fn an_apostrophe_is_defined_once() {
        let preamble = Roff::new().render();
        for page in pages() {
            assert_eq!(page.text.matches(&preamble).count(), 1, "{}", page.name);
            assert!(page.text.starts_with(&preamble), "{}", page.name);
        }
    }
}
