//! The tables against our options, and how values are read.

use super::*;
use crate::options::names;

#[test]
fn every_row_names_what_there_is() {
    let all: Vec<&Row> = rows().collect();
    for (at, row) in all.iter().enumerate() {
        for earlier in all[..at].iter().filter(|earlier| earlier.name == row.name) {
            assert_eq!(earlier.meaning, row.meaning, "{} has two meanings", row.name);
        }
        match row.meaning {
            Meaning::Knob(knob, _) | Meaning::Sets(knob, _) | Meaning::Mask(knob) => {
                assert!(flatout_settings::knob(knob).is_some(), "{}: there is no {knob}", row.name);
            }
            Meaning::Same(name) => assert!(names().any(|known| known == name), "{}: {name}", row.name),
            Meaning::Refused(why) | Meaning::Is(_, why) | Meaning::Idle(why) => {
                assert!(!why.ends_with('.') && !why.contains('\n'), "{}", row.name);
            }
            Meaning::Endpoint | Meaning::Umask | Meaning::MetricsPort => {}
        }
        // A name of ours is looked for first: a row by it means that, or nothing.
        let bare = |name: &str| name.replace('-', "_");
        let is_it = matches!(row.meaning, Meaning::Knob(knob, Unit::Same) if bare(knob) == bare(row.name));
        assert!(is_it || !names().any(|known| bare(known) == bare(row.name)), "{} is ours", row.name);
    }
}

/// What mounts do by default is taken where it means something here, so that a list of all options is no wall.
#[test]
fn defaults_of_others_are_taken_where_they_mean_something() {
    for row in rows().filter(|row| !row.default.is_empty()) {
        match row.meaning {
            Meaning::Knob(knob, unit) => {
                for value in unit.read(Some(row.default)).unwrap() {
                    flatout_settings::Settings::default().set(knob, &value).unwrap();
                }
            }
            Meaning::Sets(knob, value) => flatout_settings::Settings::default().set(knob, value).unwrap(),
            Meaning::Is(values, _) => assert!(values.contains(&row.default), "{}", row.name),
            _ => {}
        }
    }
}

#[test]
fn masks_are_read() {
    let check = |text: &str, want: &str| assert_eq!(without_mask(Some(text)).as_deref(), Ok(want), "{text}");
    check("022", "0755");
    check("0", "0777");
    check("0133", "0644");
    for text in ["", "8", "+22", "-1", "1777", "rwx"] {
        assert!(without_mask(Some(text)).is_err(), "{text}");
    }
    assert!(without_mask(None).unwrap_err().contains("as in 022"));
}

#[test]
fn units_are_read() {
    let check =
        |unit: Unit, text: &str, expected: Result<&[&str], &str>| match (unit.read(Some(text)), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{text}"),
            (Err(got), Err(expected)) => assert!(got.contains(expected), "{got}"),
            (got, expected) => panic!("{text}: {got:?}, not {expected:?}"),
        };
    check(Unit::Seconds, "60", Ok(&["60s"]));
    check(Unit::Seconds, "1.0", Ok(&["1s"]));
    check(Unit::Seconds, "2.80", Ok(&["2.8s"]));
    check(Unit::Seconds, "1.x", Err("'1.x' is no number: write seconds"));
    check(Unit::Seconds, "minimal", Err("write seconds"));
    check(Unit::Switch, "", Ok(&["true"]));
    check(Unit::Switch, "0", Ok(&["false"]));
    check(Unit::Seconds, "-1", Err("'-1' is no number: write seconds"));
    check(Unit::Seconds, "", Err("a value is missing: write seconds"));
    check(Unit::Milliseconds, "100", Ok(&["100ms"]));
    check(Unit::Bytes, "0", Ok(&["auto"]));
    check(Unit::Bytes, "1G", Ok(&["1G"]));
    check(Unit::PathStyle, "true", Ok(&["path"]));
    check(Unit::PathStyle, "False", Ok(&["auto"]));
    check(Unit::PathStyle, "maybe", Err("not a switch"));
    check(Unit::List, "10.0.0.1;10.0.0.2", Ok(&["10.0.0.1", "10.0.0.2"]));
}
