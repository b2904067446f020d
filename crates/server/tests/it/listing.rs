//! Lists of keys: the same over every store.

use crate::client::{Lab, each};

const KEYS: [&str; 8] = ["a", "a-b", "a.txt", "a0", "dir/1", "dir/2/x", "dir/2/y", "zz%20%2B%C3%BC"];

fn fill(lab: &Lab) {
    // "a" and "a/…" cannot both be files: the one thing that a folder cannot do.
    KEYS.iter().for_each(|key| drop(lab.put(&format!("/bucket/{key}"), key.as_bytes())));
}

/// Every page of a list, keys and common prefixes together, one entry a line as it came.
fn pages(lab: &Lab, query: &str, next: &str, parameter: &str) -> Vec<String> {
    let (mut all, mut more) = (Vec::new(), String::new());
    loop {
        let page = lab.get(&format!("/bucket?{query}&encoding-type=url{more}")).expect(200);
        let mut these = page.xml_all("Key");
        // The first <Prefix> is that of the request.
        these.extend(page.xml_all("Prefix").into_iter().skip(1));
        these.sort();
        assert!(these.len() <= 2, "{these:?}");
        all.extend(these);
        match page.xml(next) {
            Some(next) if page.xml("IsTruncated").as_deref() == Some("true") => {
                more = format!("&{parameter}={next}");
            }
            _ => return all,
        }
    }
}

fn check(lab: &Lab, query: &str, expected: &[&str]) {
    let query = format!("{query}&max-keys=2");
    let v2 = format!("list-type=2&{query}");
    assert_eq!(pages(lab, &v2, "NextContinuationToken", "continuation-token"), expected, "v2 {query}");
    assert_eq!(pages(lab, &query, "NextMarker", "marker"), expected, "v1 {query}");
}

#[test]
fn pages_show_every_key_once_and_in_order() {
    each(|lab| {
        fill(lab);
        check(lab, "prefix=", &KEYS);
        check(lab, "prefix=&delimiter=/", &["a", "a-b", "a.txt", "a0", "dir/", "zz%20%2B%C3%BC"]);
        check(lab, "prefix=dir/&delimiter=/", &["dir/1", "dir/2/"]);
        check(lab, "prefix=dir", &["dir/1", "dir/2/x", "dir/2/y"]);
        check(lab, "prefix=dir/2/y", &["dir/2/y"]);
        check(lab, "prefix=a", &["a", "a-b", "a.txt", "a0"]);
        check(lab, "prefix=nothing/at/all", &[]);
        check(lab, "prefix=../", &[]);
        check(lab, "prefix=/", &[]);
        check(lab, "prefix=dir//", &[]);
        check(lab, "prefix=dir/%00/", &[]);
        check(lab, &format!("prefix={}/x", "long".repeat(100)), &[]);
        check(lab, "prefix=dir/./", &[]);
    });
}

#[test]
fn what_a_list_says_of_an_object_is_true() {
    each(|lab| {
        fill(lab);
        let page = lab.get("/bucket?list-type=2&prefix=dir/2/x").expect(200);
        let head = lab.send("HEAD", "/bucket/dir/2/x", &[], b"").expect(200);
        assert_eq!(page.xml("Size").as_deref(), Some("7"));
        assert_eq!(page.xml("ETag").unwrap().replace("&quot;", "\""), head.header("etag").unwrap());
        assert!(page.xml("LastModified").unwrap().ends_with('Z'));
        assert_eq!(page.xml("KeyCount").as_deref(), Some("1"));
        assert_eq!(page.xml("IsTruncated").as_deref(), Some("false"));
    });
}

#[test]
fn start_after_and_limits() {
    each(|lab| {
        fill(lab);
        let keys = |query: &str| lab.get(&format!("/bucket?list-type=2&{query}")).expect(200).xml_all("Key");
        assert_eq!(keys("start-after=dir/1&prefix=dir"), ["dir/2/x", "dir/2/y"]);
        assert_eq!(keys("start-after=zz"), ["zz +ü"]);
        assert!(keys("max-keys=0").is_empty());
        lab.get("/bucket?list-type=2&max-keys=-1").expect(400);
        lab.get("/bucket?list-type=2&continuation-token=zz").expect(400);
    });
}
