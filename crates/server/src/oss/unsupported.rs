//! What a request can ask of OSS that this origin does not have. It is refused by name: a client that gets a 200 believes
//! that it has it.

use super::asked::Asked;
use super::refusal::Refusal;

/// Headers, or query parameters; after the name, or its start and `*`, what they ask for.
const REFUSED: [(&str, &str); 7] = [
    ("x-oss-server-side-*", "server-side encryption"),
    ("x-oss-copy-source-server-side-*", "server-side encryption"),
    ("x-oss-callback*", "callbacks"),
    ("callback*", "callbacks"),
    ("x-oss-object-worm*", "retention of objects"),
    ("x-oss-website-redirect-location", "redirects of a website"),
    ("x-oss-symlink-target", "symbolic links"),
];

/// Headers with the values that ask for what everything here is anyway.
const ALLOWED: [(&str, &[&str]); 3] = [
    ("x-oss-acl", &["private"]),
    ("x-oss-object-acl", &["private", "default"]),
    ("x-oss-bucket-acl", &["private"]),
];

/// Storage classes that are a name and a price. Objects in an archive cannot be read until they are restored.
const CLASSES: [&str; 2] = ["Standard", "IA"];
const ARCHIVES: [&str; 3] = ["Archive", "ColdArchive", "DeepColdArchive"];

/// `NotImplemented` for what is not there.
pub(super) fn check(asked: &Asked) -> Result<(), Refusal> {
    let headers =
        asked.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
    let query = asked.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    match headers.chain(query).find_map(|(name, value)| refusal_of(&name.to_ascii_lowercase(), value)) {
        Some(why) => Err(Refusal::new(501, "NotImplemented", why)),
        None => Ok(()),
    }
}

fn refusal_of(name: &str, value: &str) -> Option<String> {
    if let Some((_, allowed)) = ALLOWED.iter().find(|(other, _)| *other == name) {
        let refused = !allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(value));
        return refused.then(|| format!("{name}: {value}: this origin has no access lists"));
    }
    let is_meant = |refused: &str| match refused.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == refused,
    };
    let (_, what) = REFUSED.iter().find(|(refused, _)| is_meant(refused))?;
    Some(format!("{name}: this origin has no {what}"))
}

/// A storage class that can be kept; None for the standard one.
pub(super) fn storage_class(asked: &Asked) -> Result<Option<String>, Refusal> {
    let Some(class) = asked.header("x-oss-storage-class") else { return Ok(None) };
    let is = |known: &str| known.eq_ignore_ascii_case(&class);
    if let Some(known) = CLASSES.into_iter().find(|known| is(known)) {
        return Ok(Some(known.to_owned()).filter(|known| known != "Standard"));
    }
    match ARCHIVES.iter().any(|archive| is(archive)) {
        true => Err(Refusal::new(
            501,
            "NotImplemented",
            format!("x-oss-storage-class: {class}: this origin keeps no such objects"),
        )),
        false => Err(Refusal::new(400, "InvalidArgument", format!("{class} is no storage class"))),
    }
}
