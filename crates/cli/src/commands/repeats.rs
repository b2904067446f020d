//! What would be said of each of many objects in the same words: the first is said at once, of the others a
//! few at the end, and of more than a few how many there are.

use std::collections::HashMap;

/// So many take no more room than their count would be worth.
const FEW: usize = 3;

/// What has been said, by what it is about.
pub struct Repeats<T> {
    /// Each is said at once.
    all: bool,
    kinds: HashMap<String, Kind<T>>,
    /// In the order in which they came.
    order: Vec<String>,
}

/// What came after the first of its kind.
struct Kind<T> {
    count: u64,
    /// The first of those.
    few: Vec<T>,
}

/// What has been held back of a kind.
pub enum Rest<T> {
    /// To be said.
    Few(Vec<T>),
    /// So many, and the first of them.
    Many(u64, Vec<T>),
}

impl<T> Repeats<T> {
    /// With `all` nothing is held back.
    pub fn new(all: bool) -> Repeats<T> {
        Repeats { all, kinds: HashMap::new(), order: Vec::new() }
    }

    /// Gives `said` back where it is to be said now: the first whose reason reads so.
    pub fn take(&mut self, reason: &str, said: T) -> Option<T> {
        if self.all {
            return Some(said);
        }
        let reason = pattern(reason);
        let Some(kind) = self.kinds.get_mut(&reason) else {
            self.order.push(reason.clone());
            self.kinds.insert(reason, Kind { count: 0, few: Vec::new() });
            return Some(said);
        };
        kind.count += 1;
        if kind.few.len() < FEW {
            kind.few.push(said);
        }
        None
    }

    /// What has been held back, by kind.
    pub fn rest(&mut self) -> Vec<Rest<T>> {
        let mut kinds = std::mem::take(&mut self.kinds);
        let order = std::mem::take(&mut self.order);
        let rest = order.iter().filter_map(|reason| {
            let Kind { count, few } = kinds.remove(reason)?;
            Some(match count > few.len() as u64 {
                true => Rest::Many(count, few),
                false => Rest::Few(few),
            })
        });
        rest.collect()
    }
}

/// A reason without what differs from object to object: words with a figure in them (sizes, times, requests'
/// names, addresses), and what stands in quotes.
fn pattern(reason: &str) -> String {
    let mut plain = String::new();
    let mut rest = reason.chars();
    let mut before = ' ';
    while let Some(next) = rest.next() {
        let opens = matches!(next, '"' | '\'') && !before.is_alphanumeric();
        if opens && let Some(end) = rest.as_str().find(next) {
            plain.push('#');
            rest = rest.as_str()[end + 1..].chars();
        } else {
            plain.push(next);
        }
        before = next;
    }
    let word =
        |word: &str| if word.contains(|c: char| c.is_ascii_digit()) { "#".into() } else { word.to_owned() };
    plain.split(' ').map(word).collect::<Vec<String>>().join(" ")
}

/// `1,958 objects`, `1 object`
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

/// `1,958`
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_is_said_and_many_others_are_counted() {
        let reason = |at: u64| match at % 3 {
            0 => format!("cannot make the folder \"d{at}\": Too many open files"),
            1 => format!("no such object (404 NoSuchKey, request 18A{at})"),
            _ => "access denied (403)".to_owned(),
        };
        let check = |count: u64, at_once: &[u64], expected: &[&str]| {
            let mut repeats = Repeats::new(false);
            let said: Vec<u64> = (0..count).filter_map(|at| repeats.take(&reason(at), at)).collect();
            let shown = |rest| match rest {
                Rest::Few(few) => format!("{few:?}"),
                Rest::Many(count, few) => format!("{count} as {few:?}"),
            };
            let rest: Vec<String> = repeats.rest().into_iter().map(shown).collect();
            assert_eq!(
                (said.as_slice(), rest),
                (at_once, expected.iter().map(|one| one.to_string()).collect())
            );
            assert!(repeats.rest().is_empty());
            let mut all = Repeats::new(true);
            assert!((0..count).all(|at| all.take(&reason(at), at).is_some()) && all.rest().is_empty());
        };
        check(0, &[], &[]);
        check(4, &[0, 1, 2], &["[3]", "[]", "[]"]);
        check(13, &[0, 1, 2], &["4 as [3, 6, 9]", "[4, 7, 10]", "[5, 8, 11]"]);
        check(3000, &[0, 1, 2], &["999 as [3, 6, 9]", "999 as [4, 7, 10]", "999 as [5, 8, 11]"]);
    }

    #[test]
    fn what_differs_from_object_to_object_is_no_other_reason() {
        let check = |one: &str, other: &str, same: bool| {
            assert_eq!(pattern(one) == pattern(other), same, "{one:?} and {other:?}");
        };
        check("the body ended 12 bytes early", "the body ended 7 bytes early", true);
        check("cannot connect to 127.0.0.1:80: refused", "cannot connect to 127.0.0.1:81: refused", true);
        check("'a' is an object too", "'a b' is an object too", true);
        check("no such object (404)", "access denied (403)", false);
        check("the origin's answer is short", "the origin's clock is late", false);
    }

    #[test]
    fn figures_have_commas() {
        let check = |count, expected: &str| assert_eq!(grouped(count), expected);
        check(2, "2");
        check(999, "999");
        check(1_958, "1,958");
        check(1_234_567, "1,234,567");
        assert_eq!([counted(1, "object"), counted(0, "object")], ["1 object", "0 objects"]);
    }
}
