//! One page of a listing: keys folded at the delimiter, counted and cut.

use s3s::{S3Result, s3_error};

use crate::backend::{ListStep, ListedObject};
use crate::storage::Storage;

/// The parameters of a listing.
pub(crate) struct Query<'a> {
    pub bucket: &'a str,
    pub prefix: &'a str,
    pub delimiter: Option<&'a str>,
    /// The last key or common prefix of the previous page; "" for the first page.
    pub after: &'a str,
    pub max_keys: usize,
}

/// One page of a listing.
#[derive(Default)]
pub(crate) struct ListingPage {
    pub objects: Vec<ListedObject>,
    pub prefixes: Vec<String>,
    /// Where the next page goes on, when there is one: its [`Query::after`].
    pub next: Option<String>,
}

impl Storage {
    pub(crate) fn page(&self, query: &Query<'_>) -> S3Result<ListingPage> {
        let mut page = ListingPage::default();
        if query.max_keys == 0 {
            self.backend.check_bucket(query.bucket)?;
            return Ok(page);
        }
        let mut last = String::new();
        self.backend.list(query.bucket, query.prefix, query.after, &mut |listed| {
            let folded = fold(&listed.key, query);
            // A page may end with a common prefix; the next one must not show it again.
            if let Some(folded) = folded
                && (query.after.starts_with(folded)
                    || page.prefixes.last().is_some_and(|last| last == folded))
            {
                return ListStep::Skip(folded.to_owned());
            }
            if page.objects.len() + page.prefixes.len() == query.max_keys {
                page.next = Some(std::mem::take(&mut last));
                return ListStep::Stop;
            }
            match folded.map(str::to_owned) {
                Some(folded) => {
                    last.clone_from(&folded);
                    page.prefixes.push(folded.clone());
                    ListStep::Skip(folded)
                }
                None => {
                    last.clone_from(&listed.key);
                    page.objects.push(listed);
                    ListStep::More
                }
            }
        })?;
        Ok(page)
    }
}

/// The common prefix that a key is folded into: up to and with the first delimiter after the prefix.
fn fold<'k>(key: &'k str, query: &Query<'_>) -> Option<&'k str> {
    let delimiter = query.delimiter?;
    let start = query.prefix.len();
    let end = start + key[start..].find(delimiter)? + delimiter.len();
    Some(&key[..end])
}

/// As S3 encodes keys in listings: all but unreserved characters and the slash.
pub(crate) fn url_encode(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(byte.into());
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// A token is the last key of the page before, in hexadecimal: no client is tempted to make its own.
pub(crate) fn key_to_token(key: &str) -> String {
    key.bytes().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn token_to_key(token: &str) -> S3Result<String> {
    let digits: Option<Vec<u8>> = token
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    digits
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| s3_error!(InvalidArgument, "the continuation token is not one of this origin"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Backend;
    use crate::memory::Memory;
    use crate::sink::Sink;

    const KEYS: [&str; 9] =
        ["a", "a-b", "a/1", "a/2/x", "a/2/y", "a0", "b/\u{10ffff}/z", "b/\u{10ffff}\u{10ffff}", "ü"];

    fn put(store: &dyn Backend, keys: &[&str]) {
        for key in keys {
            let blob = store.draft("bucket", key).unwrap().finish();
            let version = crate::version::Version::of(&[&blob], Default::default(), Default::default());
            let about = crate::backend::About { metadata: Default::default(), version };
            store.publish("bucket", key, &[&blob], about).unwrap();
        }
    }

    /// The keys in memory, and each third of them there behind a sink that has the others and some twice.
    fn storages() -> [Storage; 2] {
        let (whole, third) = (Memory::default(), Memory::default());
        for memory in [&whole, &third] {
            memory.create_bucket("bucket").unwrap();
        }
        put(&whole, &KEYS);
        put(&third, &[KEYS[0], KEYS[3], KEYS[6]]);
        let sink = Sink::new(Box::new(third), Default::default());
        put(&sink, &KEYS[1..4]);
        put(&sink, &[KEYS[4], KEYS[5], KEYS[7], KEYS[8]]);
        let stores: [Box<dyn Backend>; 2] = [Box::new(whole), Box::new(sink)];
        stores.map(|store| Storage::new(store, None).unwrap())
    }

    /// All pages of each size must show the same, in order, once.
    fn check(prefix: &str, delimiter: Option<&str>, after: &str, expected: &[&str]) {
        storages().iter().for_each(|storage| check_one(storage, prefix, delimiter, after, expected));
    }

    fn check_one(storage: &Storage, prefix: &str, delimiter: Option<&str>, after: &str, expected: &[&str]) {
        for max_keys in 1..=KEYS.len() + 1 {
            let (mut shown, mut after) = (Vec::new(), after.to_owned());
            loop {
                let query = Query { bucket: "bucket", prefix, delimiter, after: &after, max_keys };
                let page = storage.page(&query).unwrap();
                let mut these: Vec<String> = page.objects.into_iter().map(|listed| listed.key).collect();
                these.extend(page.prefixes);
                these.sort();
                assert!(these.len() <= max_keys);
                shown.extend(these);
                match page.next {
                    Some(next) => after = next,
                    None => break,
                }
            }
            assert_eq!(shown, expected, "{prefix:?} {delimiter:?} {after:?}, {max_keys} a page");
        }
    }

    #[test]
    fn pages_of_any_size_show_every_key_once() {
        check("", None, "", &KEYS);
        check("", Some("/"), "", &["a", "a-b", "a/", "a0", "b/", "ü"]);
        check("a/", Some("/"), "", &["a/1", "a/2/"]);
        check("a", None, "a/2/x", &["a/2/y", "a0"]);
        check("a", Some("/"), "a/2/x", &["a0"]);
        check("", Some("2/"), "", &["a", "a-b", "a/1", "a/2/", "a0", KEYS[6], KEYS[7], "ü"]);
        check("b/", Some("\u{10ffff}"), "", &["b/\u{10ffff}"]);
        check("nothing", Some("/"), "", &[]);
        check("", None, "ü", &[]);
    }

    #[test]
    fn keys_are_encoded_as_s3_does() {
        assert_eq!(url_encode("a/b c+d%ü~"), "a/b%20c%2Bd%25%C3%BC~");
    }
}
