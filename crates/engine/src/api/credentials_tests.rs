//! When keys are asked for, kept, renewed and given up: a state and a clock, no thread.

use super::*;

fn keys(name: &str) -> Credentials {
    Credentials { access_key: name.into(), secret_key: "s3cr3t".into(), session_token: Some("t0ken".into()) }
}

fn grant(name: &str, expires: Option<u64>) -> Result<Grant, Refused> {
    Ok(Grant { credentials: keys(name), expires, provider: "test".into() })
}

fn refused(why: &str, failed: bool) -> Result<Grant, Refused> {
    Err(Refused(vec![Tried { provider: "environment".into(), why: why.into(), failed }]))
}

/// The state after answers at their times; chance is the middle.
fn after(answers: &[(u64, Result<Grant, Refused>)]) -> State<String> {
    let mut state = State::new();
    for (now, answer) in answers {
        state.take(answer.clone(), *now, 0.5, &|credentials| credentials.access_key);
    }
    state
}

/// What is done at `now`, in a word.
#[track_caller]
fn check(answers: &[(u64, Result<Grant, Refused>)], now: u64, expected: &str) {
    let word = |held: Arc<KeySet<String>>| {
        format!("{}{}", held.signer.as_deref().unwrap_or("unsigned"), held.number)
    };
    let found = match after(answers).next(now) {
        Next::Use(held) => word(held),
        Next::UseAndAsk(held) => format!("{} and ask", word(held)),
        Next::Wait => "wait".into(),
        Next::Fail(error) => {
            assert_eq!(error.kind(), ErrorKind::Denied);
            format!("fail: {error}")
        }
    };
    assert_eq!(found, expected, "at {now} after {answers:?}");
}

#[test]
fn keys_are_renewed_ahead_of_their_end() {
    check(&[], 1_000, "wait");
    check(&[(1_000, grant("a", None))], 1_000_000, "a1");
    let hour = [(1_000, grant("a", Some(4_600)))];
    check(&hour, 4_329, "a1");
    check(&hour, 4_330, "a1 and ask");
    check(&hour, 4_599, "a1 and ask");
    check(&hour, 4_600, "wait");
    // A short life is renewed at its half.
    let minute = [(1_000, grant("a", Some(1_060)))];
    check(&minute, 1_032, "a1");
    check(&minute, 1_033, "a1 and ask");
}

#[test]
fn new_keys_have_a_new_number_and_the_same_keep_theirs() {
    check(&[(0, grant("a", Some(100))), (60, grant("b", Some(200)))], 70, "b2");
    check(&[(0, grant("a", Some(100))), (60, grant("a", Some(200)))], 70, "a1");
    check(&[(0, refused("not set", false)), (60, grant("a", None))], 70, "a2");
}

#[test]
fn a_renewal_that_fails_is_an_error_only_when_the_old_keys_have_ended() {
    let failing = [(1_000, grant("a", Some(2_000))), (1_800, refused("STS is down", true))];
    check(&failing, 1_801, "a1");
    check(&failing, 1_830, "a1 and ask");
    let at_the_end = [failing[0].clone(), (1_999, refused("STS is down", true))];
    check(&at_the_end, 2_000, "fail: there are no keys to sign with: environment: STS is down");
    check(&at_the_end, 2_029, "wait");
}

#[test]
fn who_has_no_keys_asks_in_the_background() {
    let nobody = [(1_000, refused("not set", false))];
    check(&nobody, 1_059, "unsigned1");
    check(&nobody, 1_060, "unsigned1 and ask");
    assert_eq!(
        after(&nobody).held.unwrap().note.clone().map(|note| note.to_string()).as_deref(),
        Some("the request was not signed: environment: not set")
    );
}

#[test]
fn what_is_configured_and_fails_is_no_anonymity() {
    let failed = [(1_000, refused("the file is gone", true))];
    check(&failed, 1_009, "fail: there are no keys to sign with: environment: the file is gone");
    check(&failed, 1_010, "wait");
    let stale = [(1_000, grant("a", Some(1_000)))];
    check(
        &stale,
        1_001,
        "fail: there are no keys to sign with: the keys that came had ended already, 0 seconds ago; \
         is this machine's clock right?",
    );
}

#[test]
fn a_failure_names_the_others_in_its_hint() {
    let tried = |provider: &str, failed| Tried { provider: provider.into(), why: "no".into(), failed };
    let error = no_keys(&Refused(vec![tried("environment", false), tried("profile dev", true)]));
    assert_eq!(error.to_string(), "there are no keys to sign with: profile dev: no");
    let hint = error.hint().unwrap().to_string();
    assert!(
        hint.starts_with("choose other keys") && hint.ends_with("; tried before: environment: no"),
        "{hint}"
    );
}

#[test]
fn renewals_are_spread() {
    assert_eq!([renewal(0, 3_600, 0.0), renewal(0, 3_600, 1.0)], [3_300, 3_360]);
    assert_eq!([renewal(0, 10, 0.0), renewal(0, 1, 0.0)], [5, 1]);
}

#[test]
fn no_secret_is_shown() {
    let grant = grant("AKIAEXAMPLEEXAMPLE", None).unwrap();
    let shown = format!("{grant:?} {:?}", Fixed(grant.credentials.clone()));
    assert!(!shown.contains("s3cr3t") && !shown.contains("t0ken") && !shown.contains("AKIA"), "{shown}");
}
