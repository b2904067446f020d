//! The tables against our options, and what the pages show against both.

use std::path::Path;

use super::*;
use crate::foreign::OptionMeaning;
use crate::options::{MountOptions, names};

#[test]
fn every_row_names_what_there_is() {
    let all: Vec<&ForeignOption> = rows().collect();
    for (at, row) in all.iter().enumerate() {
        for earlier in all[..at].iter().filter(|earlier| earlier.name == row.name) {
            assert_eq!(earlier.meaning, row.meaning, "{} has two meanings", row.name);
        }
        match row.meaning {
            OptionMeaning::Knob(knob, _)
            | OptionMeaning::Sets(knob, _)
            | OptionMeaning::ZeroSets(knob, ..)
            | OptionMeaning::Mask(knob) => {
                assert!(flatout_settings::knob(knob).is_some(), "{}: there is no {knob}", row.name);
            }
            OptionMeaning::Same(name) => assert!(names().any(|known| known == name), "{}: {name}", row.name),
            OptionMeaning::Refused(why) | OptionMeaning::Is(_, why) | OptionMeaning::Idle(why) => {
                assert!(!why.ends_with('.') && !why.contains('\n'), "{}", row.name);
            }
            OptionMeaning::Endpoint | OptionMeaning::Umask | OptionMeaning::MetricsPort => {}
        }
        // A name of ours is looked for first: a row by it means that, with another unit perhaps, or nothing.
        let bare = |name: &str| name.replace('-', "_");
        let is_it = matches!(row.meaning, OptionMeaning::Knob(knob, _) if bare(knob) == bare(row.name));
        assert!(is_it || !names().any(|known| bare(known) == bare(row.name)), "{} is ours", row.name);
    }
}

/// What mounts do by default is taken where it means something here, so that a list of all options is no
/// wall.
#[test]
fn defaults_of_others_are_taken_where_they_mean_something() {
    for row in rows().filter(|row| !row.default.is_empty()) {
        match row.meaning {
            OptionMeaning::Knob(knob, unit) => {
                for value in unit.read(Some(row.default)).unwrap() {
                    flatout_settings::Settings::default().set(knob, &value).unwrap();
                }
            }
            OptionMeaning::Sets(knob, value) | OptionMeaning::ZeroSets(knob, value, _) => {
                flatout_settings::Settings::default().set(knob, value).unwrap()
            }
            OptionMeaning::Is(values, _) => assert!(values.contains(&row.default), "{}", row.name),
            _ => {}
        }
    }
}

/// Takes the options of each `flatout mount`, and of each line of fstab, that a page shows.
#[track_caller]
pub fn check_shown(page: &str, count: usize) {
    let joined = page.replace("\\\n", " ");
    let options_of = |line: &str| -> Option<Vec<String>> {
        let words: Vec<&str> = line.strip_prefix("    ")?.split_whitespace().collect();
        match words.as_slice() {
            ["flatout", "mount", rest @ ..] => {
                let lists = rest.windows(2).filter(|pair| pair[0] == "-o");
                Some(lists.map(|pair| pair[1].to_owned()).collect())
            }
            [_, _, "flatout", options, "0", "0"] => Some(vec![(*options).to_owned()]),
            _ => None,
        }
    };
    let shown: Vec<Vec<String>> = joined.lines().filter_map(options_of).collect();
    assert_eq!(shown.len(), count, "{shown:?}");
    for lists in shown {
        let read = MountOptions::parse(&lists, false);
        assert!(!lists.is_empty() && read.is_ok(), "{lists:?}: {read:?}");
    }
}

#[test]
fn what_the_page_about_s3fs_shows_is_understood() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-s3fs-fuse.md");
    check_shown(&std::fs::read_to_string(page).unwrap(), 2);
}
