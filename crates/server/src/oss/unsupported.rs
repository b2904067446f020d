//! Features of OSS that this origin does not have. A request for one is refused by name: a client that gets a
//! 200 believes that it has it.

use super::refusal::Refusal;
use super::request::OssRequest;

/// Headers or query parameters, by name or by prefix and `*`, each with the feature that it asks for.
const REFUSED: [(&str, &str); 7] = [
    ("x-oss-server-side-*", "server-side encryption"),
    ("x-oss-copy-source-server-side-*", "server-side encryption"),
    ("x-oss-callback*", "callbacks"),
    ("callback*", "callbacks"),
    ("x-oss-object-worm*", "retention of objects"),
    ("x-oss-website-redirect-location", "redirects of a website"),
    ("x-oss-symlink-target", "symbolic links"),
];

/// Headers with the values that this origin always fulfils.
const ALLOWED: [(&str, &[&str]); 3] = [
    ("x-oss-acl", &["private"]),
    ("x-oss-object-acl", &["private", "default"]),
    ("x-oss-bucket-acl", &["private"]),
];

/// Storage classes that are a name and a price. Objects in an archive cannot be read until they are restored.
const CLASSES: [&str; 2] = ["Standard", "IA"];
const ARCHIVES: [&str; 3] = ["Archive", "ColdArchive", "DeepColdArchive"];

/// `NotImplemented` for a feature that this origin lacks.
pub(super) fn check(request: &OssRequest) -> Result<(), Refusal> {
    let headers =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
    let query = request.query.iter().map(|(name, value)| (name.as_str(), value.as_str()));
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
pub(super) fn storage_class(request: &OssRequest) -> Result<Option<String>, Refusal> {
    let Some(class) = request.header("x-oss-storage-class") else { return Ok(None) };
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
