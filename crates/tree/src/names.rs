//! Which parts of a key can be names of files, and the order of names.

use std::cmp::Ordering;
use std::ffi::OsStr;

use crate::stats::{Counter, TreeCounters};

/// The longest name of Linux, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Whether a component can be shown; if not, the counter of its reason.
pub(crate) fn check<'a>(name: &str, hidden: &'a TreeCounters) -> Result<(), &'a Counter> {
    match name {
        "" => Err(&hidden.empty),
        "." | ".." => Err(&hidden.dots),
        _ if name.len() > NAME_BYTES_MAX => Err(&hidden.too_long),
        _ if name.contains('\0') => Err(&hidden.nul),
        _ => Ok(()),
    }
}

/// A name from the kernel as a component of a key; `None` if no key has such a component.
pub(crate) fn asked(name: &OsStr) -> Option<&str> {
    let name = name.to_str()?;
    let fits = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
    (fits && name.len() <= NAME_BYTES_MAX).then_some(name)
}

/// Compares names as if each ended in `/`. A listing is in the order of keys, in which `a`, `a-b` and `a/`
/// follow each other; only in this order are the file `a` and the folder `a/` neighbours.
pub(crate) fn order(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let common = a.len().min(b.len());
    a[..common].cmp(&b[..common]).then_with(|| {
        let next = |bytes: &[u8]| bytes.get(common).copied().unwrap_or(b'/');
        next(a).cmp(&next(b)).then(a.len().cmp(&b.len()))
    })
}

/// Whether any origin allows this as the name of a bucket: three letters at least, no capitals. Programs look
/// for many files at the root of a mount (`.Trash`, `autorun.inf`), and the origin need not be asked for
/// these.
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
        let counters = TreeCounters::default();
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
