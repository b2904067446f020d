//! The tables against our options, and how values are read.

use super::*;
use crate::options::names;

#[test]
fn every_row_names_what_there_is() {
    let all: Vec<&ForeignOption> = rows().collect();
    for (at, row) in all.iter().enumerate() {
        for earlier in all[..at].iter().filter(|earlier| earlier.name == row.name) {
            assert_eq!(earlier.meaning, row.meaning, "{} has two meanings", row.name);
        }
        match row.meaning {
            OptionMeaning::Knob(knob, _) | OptionMeaning::Sets(knob, _) | OptionMeaning::Mask(knob) => {
                assert!(flatout_settings::knob(knob).is_some(), "{}: there is no {knob}", row.name);
            }
            OptionMeaning::Same(name) => assert!(names().any(|known| known == name), "{}: {name}", row.name),
            OptionMeaning::Refused(why) | OptionMeaning::Is(_, why) | OptionMeaning::Idle(why) => {
                assert!(!why.ends_with('.') && !why.contains('\n'), "{}", row.name);
            }
            OptionMeaning::Endpoint | OptionMeaning::Umask | OptionMeaning::MetricsPort => {}
        }
        // A name of ours is looked for first: a row by it means that, or nothing.
        let bare = |name: &str| name.replace('-', "_");
        let is_it =
            matches!(row.meaning, OptionMeaning::Knob(knob, ValueUnit::Same) if bare(knob) == bare(row.name));
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
            OptionMeaning::Sets(knob, value) => {
                flatout_settings::Settings::default().set(knob, value).unwrap()
            }
            OptionMeaning::Is(values, _) => assert!(values.contains(&row.default), "{}", row.name),
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
    let check = |unit: ValueUnit, text: &str, expected: Result<&[&str], &str>| match (
        unit.read(Some(text)),
        expected,
    ) {
        (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{text}"),
        (Err(got), Err(expected)) => assert!(got.contains(expected), "{got}"),
        (got, expected) => panic!("{text}: {got:?}, not {expected:?}"),
    };
    check(ValueUnit::Seconds, "60", Ok(&["60s"]));
    check(ValueUnit::Seconds, "1.0", Ok(&["1s"]));
    check(ValueUnit::Seconds, "2.80", Ok(&["2.8s"]));
    check(ValueUnit::Seconds, "1.x", Err("'1.x' is no number: write seconds"));
    check(ValueUnit::Seconds, "minimal", Ok(&["0.1s"]));
    check(ValueUnit::Seconds, "indefinite", Ok(&["31536000s"]));
    check(ValueUnit::Seconds, "soon", Err("write seconds"));
    check(ValueUnit::Switch, "", Ok(&["true"]));
    check(ValueUnit::Switch, "0", Ok(&["false"]));
    check(ValueUnit::Seconds, "-1", Err("'-1' is no number: write seconds"));
    check(ValueUnit::Seconds, "", Err("a value is missing: write seconds"));
    check(ValueUnit::Milliseconds, "100", Ok(&["100ms"]));
    check(ValueUnit::Bytes, "0", Ok(&["auto"]));
    check(ValueUnit::Bytes, "1G", Ok(&["1G"]));
    check(ValueUnit::PathStyle, "true", Ok(&["path"]));
    check(ValueUnit::PathStyle, "False", Ok(&["auto"]));
    check(ValueUnit::PathStyle, "maybe", Err("not a switch"));
    check(ValueUnit::List, "10.0.0.1;10.0.0.2", Ok(&["10.0.0.1", "10.0.0.2"]));
}
