//! Percent-encoding as RFC 3986 and SigV4 want it: unreserved characters stay, all others become `%XX` in
//! upper case.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All but the unreserved characters.
const QUERY: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: AsciiSet = QUERY.remove(b'/');

/// Appends `text` encoded, '/' kept: an object's key in a path.
pub(crate) fn encode_path(text: &str, out: &mut String) {
    encode(text, &PATH, out);
}

/// Appends `text` encoded, '/' as `%2F`: a name or a value in a query.
pub fn encode_query(text: &str, out: &mut String) {
    encode(text, &QUERY, out);
}

fn encode(text: &str, set: &'static AsciiSet, out: &mut String) {
    out.reserve(text.len());
    out.extend(utf8_percent_encode(text, set));
}

/// The bytes behind `%XX`; a '%' that starts no such triple stays as it is.
pub fn decode(text: &str) -> Cow<'_, [u8]> {
    percent_decode_str(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        let rows = [
            ("a/b.txt", "a/b.txt", "a%2Fb.txt"),
            ("a b+c", "a%20b%2Bc", "a%20b%2Bc"),
            ("~-._", "~-._", "~-._"),
            ("ü", "%C3%BC", "%C3%BC"),
            ("%41", "%2541", "%2541"),
            ("//..//", "//..//", "%2F%2F..%2F%2F"),
        ];
        for (text, path, query) in rows {
            let (mut as_path, mut as_query) = (String::new(), String::new());
            encode_path(text, &mut as_path);
            encode_query(text, &mut as_query);
            assert_eq!((as_path.as_str(), as_query.as_str()), (path, query));
            assert_eq!(decode(&as_path).as_ref(), text.as_bytes());
            assert_eq!(decode(&as_query).as_ref(), text.as_bytes());
        }
        for (text, decoded) in [("%", "%"), ("%4", "%4"), ("%zz%41", "%zzA"), ("%%41", "%A")] {
            assert_eq!(decode(text).as_ref(), decoded.as_bytes());
        }
    }
}
