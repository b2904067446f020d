//! A word that stands where secrets stand, and must not be seen again in anything that people are shown.

/// Of the alphabet of AWS's keys, and of a kind that nothing else holds by chance.
pub(crate) const SECRET: &str = "hUnTeR2wJalrXUtnFEMIbPxRfiCY";
/// A piece of it is as bad: what is cut in two must be seen in neither half.
const PIECE: &str = "hUnTeR2wJal";

/// Whether something that is called so lets its reader in.
pub(crate) fn names_one(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["secret", "token", "password"].iter().any(|part| name.contains(part))
}

#[track_caller]
pub(crate) fn assert_hidden(shown: &str, from: &str) {
    assert!(!shown.contains(PIECE), "a secret is shown: {shown:?}\nfrom {from:?}");
}
