//! `--include` and `--exclude`, in the order in which they were typed: the first that matches decides.

use clap::builder::Command;
use clap::{Arg, ArgAction, ArgMatches, Args, Error, FromArgMatches};

use super::pattern::Pattern;

/// The rules of one command line; none at all takes everything.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    rules: Vec<(Pattern, bool)>,
}

impl Filters {
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the path below the source folder is taken. What no rule matches is, unless something is to be
    /// included: then only that is meant.
    pub fn take(&self, path: &str) -> bool {
        let decided = self.rules.iter().find(|(pattern, _)| pattern.matches(path));
        decided.map_or_else(|| self.rules.iter().all(|(_, include)| !include), |(_, include)| *include)
    }
}

impl Filters {
    /// Whether a rule leaves this path out. What no rule matches may be a folder, with something to take.
    pub fn excludes(&self, path: &str) -> bool {
        self.rules.iter().find(|(pattern, _)| pattern.matches(path)).is_some_and(|(_, include)| !include)
    }

    /// Whether something below this folder may be taken: not where all of it is excluded.
    pub fn goes_into(&self, folder: &str) -> bool {
        let decides = |(pattern, include): &&(Pattern, bool)| *include || pattern.has_all_below(folder);
        self.rules.iter().find(decides).is_none_or(|(_, include)| *include)
    }
}

impl Args for Filters {
    fn augment_args(command: Command) -> Command {
        let flag = |name: &'static str, help: &'static str| {
            Arg::new(name)
                .long(name)
                .help(help)
                .value_name("PATTERN")
                .action(ArgAction::Append)
                .value_parser(Pattern::of_paths)
                .help_heading("Selection")
        };
        let include =
            "Only objects whose path below the source matches: *.bin, /top/*.bin, dir/, **, [a-z], {a,b}";
        let exclude = "Leave out objects whose path matches; of all --include and --exclude the first that matches decides";
        command.arg(flag("include", include)).arg(flag("exclude", exclude))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Filters::augment_args(command)
    }
}

impl FromArgMatches for Filters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Filters, Error> {
        let mut rules = Vec::new();
        for (name, include) in [("include", true), ("exclude", false)] {
            let patterns = matches.get_many::<Pattern>(name).into_iter().flatten().cloned();
            let places = matches.indices_of(name).into_iter().flatten();
            rules.extend(places.zip(patterns).map(|(place, pattern)| (place, pattern, include)));
        }
        rules.sort_by_key(|(place, ..)| *place);
        Ok(Filters { rules: rules.into_iter().map(|(_, pattern, include)| (pattern, include)).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Filters::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &[&str], taken: &[&str], left: &[&str]) {
        let command = Filters::augment_args(Command::new("test").no_binary_name(true));
        let matches = command.try_get_matches_from(typed).expect("good flags");
        let filters = Filters::from_arg_matches(&matches).expect("good patterns");
        for path in taken {
            assert!(filters.take(path), "{typed:?} takes {path}");
        }
        for path in left {
            assert!(!filters.take(path), "{typed:?} leaves {path}");
        }
    }

    #[test]
    fn a_folder_is_left_where_all_of_it_is_excluded() {
        let check = |typed: &[&str], into: &[&str], left: &[&str]| {
            let command = Filters::augment_args(Command::new("test").no_binary_name(true));
            let matches = command.try_get_matches_from(typed).expect("good flags");
            let filters = Filters::from_arg_matches(&matches).expect("good patterns");
            assert!(into.iter().all(|folder| filters.goes_into(folder)), "{typed:?}");
            assert!(left.iter().all(|folder| !filters.goes_into(folder)), "{typed:?}");
        };
        check(&[], &["a"], &[]);
        check(&["--exclude", "skip/"], &["a", "skipped"], &["skip", "a/skip", "skip/b"]);
        check(&["--exclude", "/a/**"], &["b/a"], &["a", "a/b"]);
        check(&["--exclude", "*"], &["a"], &[]);
        check(&["--include", "*.bin", "--exclude", "skip/"], &["skip"], &[]);
        check(&["--exclude", "skip/", "--include", "*.bin"], &["a"], &["skip"]);
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        check(&[], &["a", "b/c"], &[]);
        check(&["--exclude", "*.tmp"], &["a", "b/c"], &["x.tmp", "b/x.tmp"]);
        check(&["--include", "*.bin"], &["a.bin", "b/a.bin"], &["a", "b/c"]);
        check(&["--exclude", "/b/", "--include", "*.bin"], &["a.bin"], &["b/a.bin", "a"]);
        check(&["--include", "*.bin", "--exclude", "/b/"], &["a.bin", "b/a.bin"], &["a", "b/c"]);
        check(&["--include=a", "--exclude=**", "--include=b"], &["a"], &["b"]);
    }
}
