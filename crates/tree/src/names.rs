//! Which keys can be names, and the order of names.

use std::cmp::Ordering;
use std::ffi::OsStr;

use crate::stats::{Counter, Counters};

/// The longest name of Linux, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Whether a component can be shown; otherwise where it is counted.
pub(crate) fn check<'a>(name: &str, hidden: &'a Counters) -> Result<(), &'a Counter> {
    match name {
        "" => Err(&hidden.empty),
        "." | ".." => Err(&hidden.dots),
        _ if name.len() > NAME_BYTES_MAX => Err(&hidden.too_long),
        _ if name.contains('\0') => Err(&hidden.nul),
        _ => Ok(()),
    }
}

/// A name that somebody asks for, as a component of a key; `None` where no key has such a one.
pub(crate) fn asked(name: &OsStr) -> Option<&str> {
    let name = name.to_str()?;
    let fits = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
    (fits && name.len() <= NAME_BYTES_MAX).then_some(name)
}

/// Names as if each had a `/` behind it. A listing is in the order of keys, where `a`, `a-b` and `a/` follow each other: only
/// in this order do the file `a` and the folder `a/` stand side by side.
pub(crate) fn order(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let common = a.len().min(b.len());
    a[..common].cmp(&b[..common]).then_with(|| {
        let next = |bytes: &[u8]| bytes.get(common).copied().unwrap_or(b'/');
        next(a).cmp(&next(b)).then(a.len().cmp(&b.len()))
    })
}

/// Whether a bucket may be called that anywhere: three letters at least, no capitals. Programs look for many a file at the root
/// of a mount, and none of these names needs to be asked for.
pub(crate) fn may_be_bucket(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let inside = |byte: u8| letter(byte) || matches!(byte, b'-' | b'.' | b'_');
    (3..=63).contains(&name.len())
        && name.bytes().all(inside)
        && letter(name.as_bytes()[0])
        && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn components_that_cannot_be_shown() {
        let counters = Counters::default();
        let long = "x".repeat(256);
        for (name, reason) in [
            ("", &counters.empty),
            (".", &counters.dots),
            ("..", &counters.dots),
            (&*long, &counters.too_long),
            ("a\0b", &counters.nul),
        ] {
            let counted = check(name, &counters).expect_err(name);
            assert!(std::ptr::eq(counted, reason), "{name}");
            assert_eq!(asked(OsStr::new(name)), None);
        }
        for name in ["...", " ", "a\nb", "ü", &long[..255], "-", "a b"] {
            assert!(check(name, &counters).is_ok() && asked(OsStr::new(name)).is_some(), "{name}");
        }
    }

    #[test]
    fn names_that_no_bucket_has() {
        for name in ["abc", "my-bucket.of_mine", "0-1", &"x".repeat(63)] {
            assert!(may_be_bucket(name), "{name}");
        }
        for name in ["", "ab", ".Trash", "autorun.INF", ".git", "a..b", "ä-ö-ü", &"x".repeat(64)] {
            assert!(!may_be_bucket(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_names_with_a_slash(a in "[ab/.\\-0]{0,6}", b in "[ab/.\\-0]{0,6}") {
            let (a, b) = (a.replace('/', "!"), b.replace('/', "!"));
            prop_assert_eq!(order(&a, &b), format!("{a}/").cmp(&format!("{b}/")));
        }
    }
}
