//! ETags, packed: a million of them are kept. An inode and its name take 160 bytes this way, and 200 with the
//! ETag as a string of its own (resident memory of a million).

use std::fmt::Write;

use flatout_wire::head::strong;

/// The ETag of a version, as sent. Most are MD5 digests, alone or followed by a number of parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Etag {
    #[default]
    None,
    Md5 {
        digest: [u8; 16],
        upper: bool,
    },
    Parts {
        digest: [u8; 16],
        upper: bool,
        parts: u16,
    },
    Other(Box<str>),
}

impl Etag {
    pub(crate) fn of(sent: Option<&str>) -> Etag {
        let Some(sent) = sent else { return Etag::None };
        Etag::packed(sent)
            .filter(|etag| etag.sent().as_deref() == Some(sent))
            .unwrap_or(Etag::Other(sent.into()))
    }

    /// The packed form, if it looks like one; the caller checks that it unpacks to the string that was sent.
    fn packed(sent: &str) -> Option<Etag> {
        let bare = sent.strip_prefix('"')?.strip_suffix('"')?;
        let (hex, parts) = bare.split_once('-').unwrap_or((bare, ""));
        if hex.len() != 32 || !hex.is_ascii() {
            return None;
        }
        let mut digest = [0; 16];
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
        }
        let upper = hex.bytes().any(|byte| byte.is_ascii_uppercase());
        Some(match parts {
            "" => Etag::Md5 { digest, upper },
            parts => Etag::Parts { digest, upper, parts: parts.parse().ok()? },
        })
    }

    /// As sent, with its quotes.
    pub(crate) fn sent(&self) -> Option<String> {
        let (digest, upper, parts) = match self {
            Etag::None => return None,
            Etag::Other(sent) => return Some(sent.to_string()),
            Etag::Md5 { digest, upper } => (digest, *upper, None),
            Etag::Parts { digest, upper, parts } => (digest, *upper, Some(*parts)),
        };
        let mut sent = String::with_capacity(40);
        sent.push('"');
        for byte in digest {
            let written = if upper { write!(sent, "{byte:02X}") } else { write!(sent, "{byte:02x}") };
            written.expect("a string takes everything");
        }
        if let Some(parts) = parts {
            write!(sent, "-{parts}").expect("a string takes everything");
        }
        sent.push('"');
        Some(sent)
    }

    /// Whether two versions with this ETag have the same bytes.
    pub(crate) fn is_strong(&self) -> bool {
        match self {
            Etag::None => false,
            Etag::Md5 { .. } | Etag::Parts { .. } => true,
            Etag::Other(sent) => strong(sent).is_some(),
        }
    }

    /// Bytes on the heap.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Etag::Other(sent) => sent.len() + 16,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_out_as_it_went_in() {
        assert_eq!(size_of::<Etag>(), 24);
        assert_eq!(Etag::of(None).sent(), None);
        let rows = [
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71\"", true),
            ("\"5B3C1A2E053D763E1B002CC607C5A0FE\"", true),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-38\"", true),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-038\"", false),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-\"", false),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-99999\"", false),
            ("\"70EE1738b6b21e2c8a43f3a5ab0eee71\"", false),
            ("70ee1738b6b21e2c8a43f3a5ab0eee71", false),
            ("\"+0ee1738b6b21e2c8a43f3a5ab0eee71\"", false),
            ("W/\"x\"", false),
            ("\"\"", false),
            ("", false),
        ];
        for (sent, small) in rows {
            let etag = Etag::of(Some(sent));
            assert_eq!(etag.sent().as_deref(), Some(sent));
            assert_eq!(etag.weight() == 0, small, "{sent}");
        }
    }
}
