//! A planted secret, which must not appear in any text for people.

/// It uses the alphabet of AWS's keys, and does not occur by chance.
pub(crate) const SECRET: &str = "hUnTeR2wJalrXUtnFEMIbPxRfiCY";
/// A piece of it is as bad: neither half may appear.
const PIECE: &str = "hUnTeR2wJal";

/// Whether a field of this name holds a secret.
pub(crate) fn names_one(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["secret", "token", "password"].iter().any(|part| name.contains(part))
}

#[track_caller]
pub(crate) fn assert_hidden(shown: &str, from: &str) {
    assert!(!shown.contains(PIECE), "a secret is shown: {shown:?}\nfrom {from:?}");
}
