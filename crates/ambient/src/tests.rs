//! Which layer wins, and what is said when a layer is wrong.

use std::ffi::OsString;

use crate::{Ambient, AmbientError, Layer, gather_from};

type Table<'a> = &'a [(&'a str, &'a str)];

fn gathered(flags: Table, environment: Table) -> Result<Ambient, AmbientError> {
    let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    gather_from(&flags, &environment.iter().map(|(name, value)| (name.into(), value.into())).collect())
}

#[test]
fn the_first_layer_that_has_a_value_wins() {
    let check = |flags: Table,
                 environment: Table,
                 endpoint: Option<&str>,
                 region: Option<&str>,
                 parallel: Option<u32>| {
        let settings = gathered(flags, environment).unwrap().settings;
        assert_eq!(settings.endpoint_url.as_deref(), endpoint, "{flags:?} {environment:?}");
        assert_eq!(settings.region.as_deref(), region, "{flags:?} {environment:?}");
        assert_eq!(settings.parallel, parallel, "{flags:?} {environment:?}");
    };
    let default = flatout_settings::Settings::default().parallel;
    let (a, b, c, d) = ("http://a:1", "http://b:2", "http://c:3", "http://d:4");
    check(&[], &[], None, None, default);
    check(&[("parallel", "3")], &[("FLATOUT_PARALLEL", "5")], None, None, Some(3));
    check(&[], &[("FLATOUT_PARALLEL", "5")], None, None, Some(5));
    check(&[], &[("FLATOUT_PARALLEL", "")], None, None, default);
    check(&[("endpoint-url", a)], &[("FLATOUT_ENDPOINT_URL", b)], Some(a), None, default);
    check(&[], &[("FLATOUT_ENDPOINT_URL", b), ("AWS_ENDPOINT_URL_S3", c)], Some(b), None, default);
    check(&[], &[("AWS_ENDPOINT_URL", d), ("AWS_ENDPOINT_URL_S3", c)], Some(c), None, default);
    check(&[], &[("S3_ENDPOINT_URL", c), ("AWS_ENDPOINT_URL", d)], Some(d), None, default);
    check(&[], &[("S3_ENDPOINT_URL", c)], Some(c), None, default);
    check(&[], &[("AWS_DEFAULT_REGION", "x"), ("AWS_REGION", "y")], None, Some("y"), default);
    check(&[], &[("AWS_DEFAULT_REGION", "x")], None, Some("x"), default);
    check(&[("region", "z")], &[("AWS_REGION", "y")], None, Some("z"), default);
}

#[test]
fn a_repeatable_knob_keeps_every_value() {
    let check = |flags: Table, environment: Table, expected: &[&str]| {
        assert_eq!(gathered(flags, environment).unwrap().settings.resolve, expected);
    };
    let (one, two) = ("a:80:127.0.0.1", "b:80:127.0.0.2");
    check(&[("resolve", one), ("resolve", two)], &[], &[one, two]);
    check(&[], &[("FLATOUT_RESOLVE", "a:80:127.0.0.1  b:80:127.0.0.2")], &[one, two]);
    check(&[("resolve", one)], &[("FLATOUT_RESOLVE", two)], &[one]);
}

#[test]
fn what_is_wrong_is_named_and_no_secret_is_quoted() {
    // Half a pair of AWS is nothing to OSS and to plain HTTP: who asks for S3 keys hears of it.
    assert!(gathered(&[], &[("AWS_SECRET_ACCESS_KEY", "s3cr3t")]).is_ok());
    let check = |flags: Table, environment: Table, expected: &[&str]| {
        let error = gathered(flags, environment).unwrap_err();
        let message = format!("{error} {}", error.hint().unwrap_or_default());
        for part in expected {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
        assert!(!format!("{message}{error:?}").contains("s3cr3t"), "{message}");
    };
    check(&[("part-size", "8 bananas")], &[], &["--part-size: '8 bananas' is not"]);
    check(&[], &[("FLATOUT_PARALLEL", "many")], &["FLATOUT_PARALLEL"]);
}

#[test]
fn a_misspelled_variable_was_ignored() {
    let check = |name: &str, hint: Option<&str>| {
        let refused = gathered(&[], &[(name, "1")]).err();
        assert_eq!(
            refused.as_ref().and_then(AmbientError::hint).map(|hint| hint.to_string()).as_deref(),
            hint,
            "{name}"
        );
        assert!(refused.is_none_or(|error| error.to_string().starts_with(name)), "{name}");
    };
    check("FLATOUT_PARALEL", Some("did you mean FLATOUT_PARALLEL?"));
    check("FLATOUT_PARTSIZE", Some("did you mean FLATOUT_PART_SIZE?"));
    check("FLATOUT_COLOUR", Some("unset FLATOUT_COLOUR; NameSettings names every variable"));
    check("FLATOUT_PARALLEL", None);
    check("FLATOUT_CACHE", None);
    check("FLAT_OUT", None);
    assert!(gathered(&[], &[("FLATOUT_PARALEL", "")]).is_ok());
}

#[test]
fn a_part_size_above_half_the_default_window_was_refused() {
    let check = |flags: Table, environment: Table, window_mib: Option<Option<u64>>| {
        let window_bytes = gathered(flags, environment).ok().map(|found| found.settings.window_bytes);
        let expected = window_mib.map(|mib| mib.map(|mib| mib << 20));
        assert_eq!(window_bytes, expected, "{flags:?} {environment:?}");
    };
    let memory = ("memory", "2GiB");
    check(&[("part-size", "33MiB")], &[], Some(None));
    check(&[], &[("FLATOUT_PART_SIZE", "4GiB")], Some(None));
    check(&[("part-size", "33MiB"), ("window", "65MiB")], &[], None);
    check(&[("part-size", "33MiB")], &[("FLATOUT_WINDOW", "64MiB")], None);
    check(&[("part-size", "33MiB"), ("window", "1GiB"), memory], &[], Some(Some(1 << 10)));
}

#[test]
fn memory_is_what_was_said_or_else_a_quarter_of_what_is_there() {
    let check = |flags: Table, environment: Table, layer: Layer| {
        let found = gathered(flags, environment).unwrap();
        let row = found.rows.iter().find(|row| row.name == "memory").unwrap();
        assert_eq!(row.layer, layer, "{row:?}");
        found.settings.memory_bytes
    };
    assert_eq!(check(&[("memory", "1GiB")], &[("FLATOUT_MEMORY", "2GiB")], Layer::Flag), 1 << 30);
    assert_eq!(check(&[], &[("FLATOUT_MEMORY", "2GiB")], Layer::Environment), 2 << 30);
    // Of this machine, which has some.
    let found = check(&[], &[], Layer::Found);
    assert!((256 << 20..=8 << 30).contains(&found), "{found}");
    assert_eq!(check(&[("memory", " Auto")], &[("FLATOUT_MEMORY", "2GiB")], Layer::Found), found);
    assert_eq!(check(&[], &[("FLATOUT_MEMORY", "auto")], Layer::Found), found);
}

#[test]
fn bytes_that_are_no_text_are_named() {
    use std::os::unix::ffi::OsStringExt;
    let environment = [("AWS_REGION".into(), OsString::from_vec(vec![0xff]))].into();
    let error = gather_from(&[], &environment).unwrap_err();
    assert!(error.to_string().contains("AWS_REGION is not valid UTF-8"), "{error}");
}
