//! Percent-encoding as RFC 3986 and SigV4 want it: unreserved characters stay, all others become `%XX` in
//! upper case.

use std::borrow::Cow;

/// Appends `text` encoded, '/' kept: an object's key in a path.
pub(crate) fn encode_path(text: &str, out: &mut String) {
    encode(text, true, out);
}

/// Appends `text` encoded, '/' as `%2F`: a name or a value in a query.
pub fn encode_query(text: &str, out: &mut String) {
    encode(text, false, out);
}

/// The bytes behind `%XX`; a '%' that starts no such triple stays as it is.
pub(crate) fn decode(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('%') {
        return Cow::Borrowed(text.as_bytes());
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match triple(&bytes[at..]) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    Cow::Owned(decoded)
}

fn encode(text: &str, keep_slash: bool, out: &mut String) {
    out.reserve(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            b'/' if keep_slash => out.push('/'),
            _ => push_triple(byte, out),
        }
    }
}

/// Appends `%XX`.
pub(crate) fn push_triple(byte: u8, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(HEX[usize::from(byte >> 4)].into());
    out.push(HEX[usize::from(byte & 15)].into());
}

/// The byte of a `%XX` at the start of `bytes`.
fn triple(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [b'%', high, low, ..] => Some(hex_digit(*high)? << 4 | hex_digit(*low)?),
        _ => None,
    }
}

/// The value of one hexadecimal digit.
pub(crate) fn hex_digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
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
