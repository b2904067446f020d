//! Pages of names from pages of keys.

use flatout_engine::{Entry, Listed};
use proptest::prelude::*;

use super::*;

fn entry(key: &str) -> Entry {
    match key.ends_with('/') && key != "p/" {
        true => Entry::Prefix(key.into()),
        false => Entry::Object(Listed { key: key.into(), size: 7, last_modified: 5, ..Listed::default() }),
    }
}

/// What is shown of keys under `p/` that come in such pages, a line for each name; and what is not.
fn shown(pages: &[&[&str]]) -> (Vec<String>, TreeCounters, PageBuilder) {
    let (mut builder, counters, mut lines) = (PageBuilder::new("p/"), TreeCounters::default(), Vec::new());
    for (number, keys) in pages.iter().enumerate() {
        let entries = keys.iter().map(|key| entry(key)).collect();
        let is_last = number + 1 == pages.len();
        if let Some(page) = builder.bind(entries, is_last, 10 * number as u64, &counters) {
            assert_eq!(page.first, lines.len() as u64);
            for at in 0..page.len() {
                assert_eq!(page.find(page.name(at)), Some(at));
                lines.push(format!("{}{}", page.name(at), if page.is_folder(at) { "/" } else { "" }));
            }
        }
    }
    (lines, counters, builder)
}

#[test]
fn a_folder_hides_the_file_of_its_name_however_far_behind() {
    let check = |pages: &[&[&str]], want: &[&str], shadowed| {
        let (lines, counters, builder) = shown(pages);
        assert_eq!(lines, want);
        assert_eq!((counters.shadowed.get(), builder.is_unordered), (shadowed, false));
    };
    check(&[&["p/a", "p/a/"]], &["a/"], 1);
    check(&[&["p/a", "p/a-b", "p/a.c", "p/a/", "p/b"]], &["a-b", "a.c", "a/", "b"], 1);
    check(&[&["p/a", "p/a-b"], &["p/a.c"], &["p/a/", "p/b"]], &["a-b", "a.c", "a/", "b"], 1);
    check(&[&["p/a", "p/a-", "p/a-/", "p/a-b"], &["p/a0"]], &["a-/", "a-b", "a", "a0"], 1);
    check(&[&["p/a", "p/a-"], &["p/a-b"], &[]], &["a-", "a-b", "a"], 0);
    check(&[&["p/a"], &["p/a0", "p/b/"]], &["a", "a0", "b/"], 0);
    check(&[&[], &[]], &[], 0);
}

#[test]
fn keys_that_are_no_names_are_counted() {
    let long = format!("p/{}", "x".repeat(256));
    let (lines, counters, builder) =
        shown(&[&["p/", "p//", "p/../", "p/./", "p/a\0b", "p/ok", &long, &format!("{long}/")]]);
    assert_eq!(lines, ["ok"]);
    let hidden = counters.hidden();
    assert_eq!((hidden.empty, hidden.dots, hidden.nul, hidden.too_long), (1, 2, 1, 2));
    assert_eq!((hidden.total(), builder.marker_s), (6, Some(5)));
}

#[test]
fn a_page_remembers_when_its_oldest_entry_was_asked_for() {
    let (mut builder, counters) = (PageBuilder::new(""), TreeCounters::default());
    assert!(builder.bind(vec![entry("a")], false, 10, &counters).is_none());
    let page = builder.bind(vec![entry("b")], false, 20, &counters).expect("a");
    assert_eq!((page.len(), page.asked_ms), (1, 10));
    let page = builder.bind(vec![], true, 30, &counters).expect("b");
    assert_eq!((page.len(), page.asked_ms, page.first), (1, 20, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the keys and wherever pages end: each name once, folders before files, in order.
    #[test]
    fn every_name_is_shown_once(
        keys in proptest::collection::btree_set("p/[ab\\-./]{1,4}", 0..30),
        page in 1..6usize,
    ) {
        let mut listed = std::collections::BTreeSet::new();
        for key in &keys {
            match key[2..].find('/') {
                Some(at) => listed.insert(key[..2 + at + 1].to_owned()),
                None => listed.insert(key.clone()),
            };
        }
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let mut pages: Vec<&[&str]> = listed.chunks(page).collect();
        pages.push(&[]);
        let (lines, _, builder) = shown(&pages);
        prop_assert!(!builder.is_unordered);
        let mut want: Vec<String> = listed.iter().map(|key| key[2..].to_owned()).collect();
        want.retain(|name| {
            let bare = name.trim_end_matches('/');
            let shadowed = !name.ends_with('/') && listed.contains(&format!("p/{name}/").as_str());
            !shadowed && !bare.is_empty() && bare != "." && bare != ".."
        });
        want.sort_by(|a, b| names::order(a.trim_end_matches('/'), b.trim_end_matches('/')));
        prop_assert_eq!(lines, want);
    }
}

/// An origin that does not listen to the prefix it is asked for.
#[test]
fn keys_that_do_not_begin_with_what_was_asked_for_are_not_shown() {
    let (lines, counters, builder) =
        shown(&[&["aü", "a/c", "o/", "p", "p/b", "", "q/p/d", "q/r/"], &["p/e"]]);
    assert_eq!((lines, counters.hidden().foreign), (vec!["b".to_owned(), "e".to_owned()], 7));
    assert_eq!((counters.hidden().total(), builder.marker_s, builder.is_unordered), (7, None, false));
}
