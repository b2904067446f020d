//! Values as they may be shown.

/// A URL without user, password and query. Neither an endpoint nor a proxy has an `@` that means anything
/// else, and a password may hold a slash: whatever stands before the last one goes.
pub fn masked(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (user, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("***@", rest));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    let colon = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{colon}{user}{rest}{query}")
}

/// The last four characters of an access key; nothing of one so short that they would be most of it.
pub(crate) fn tail(access_key: &str) -> String {
    let characters: Vec<char> = access_key.chars().collect();
    match characters.len() {
        ..10 => "…".into(),
        length => format!("…{}", characters[length - 4..].iter().collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_is_left_out() {
        let check = |url: &str, expected: &str| assert_eq!(masked(url), expected);
        check("http://h:1", "http://h:1");
        check("h:1", "h:1");
        check("http://u:p@h:1/x", "http://***@h:1/x");
        check("http://u:p/w?@d@h:1", "http://***@h:1");
        check("u:p@h:1", "***@h:1");
        check("http://h/x?sig=1", "http://h/x?…");
        for (key, expected) in [("AKIAIOSFODNN7EXAMPLE", "…MPLE"), ("123456789", "…"), ("", "…")] {
            assert_eq!(tail(key), expected);
        }
    }
}
