//! How values are read.

use super::*;

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
    check(ValueUnit::SecondsOrEver, "900", Ok(&["900s"]));
    check(ValueUnit::SecondsOrEver, "-1", Ok(&["31536000s"]));
    check(ValueUnit::SecondsOrEver, "-2", Err("'-2' is no number: write seconds"));
    check(ValueUnit::Milliseconds, "100", Ok(&["100ms"]));
    check(ValueUnit::Mebibytes, "32", Ok(&["32MiB"]));
    check(ValueUnit::Mebibytes, "32M", Err("'32M' is no number: write a number of MiB"));
    check(ValueUnit::Mebibytes, "", Err("a value is missing: write a number of MiB"));
    check(ValueUnit::Bytes, "0", Ok(&["auto"]));
    check(ValueUnit::Bytes, "1G", Ok(&["1G"]));
    check(ValueUnit::PathStyle, "true", Ok(&["path"]));
    check(ValueUnit::PathStyle, "False", Ok(&["auto"]));
    check(ValueUnit::PathStyle, "maybe", Err("not a switch"));
    check(ValueUnit::List, "10.0.0.1;10.0.0.2", Ok(&["10.0.0.1", "10.0.0.2"]));
}
