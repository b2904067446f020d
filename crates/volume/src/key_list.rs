//! Lists of keys, as `find`, `aws s3 ls` or a query of one's own write them: one key a line.

use std::io::{self, BufRead};

use crate::lines::{Line, read_line};

/// The longest key that is read. Keys of S3 have at most 1,024 bytes, those of OSS 1,023.
const LONGEST: usize = 4096;

/// What stands between two keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Separator {
    /// `\n`. A `\r` before it is cut, so that files from Windows are read too.
    #[default]
    Newline,
    /// NUL, as `find -print0` writes it: for keys that contain line ends.
    Nul,
}

/// Why a key was not read.
#[derive(Debug, thiserror::Error)]
pub enum KeyListError {
    /// The key is not UTF-8. The next call goes on with the key after it.
    #[error("line {line} of the list of keys is not UTF-8; write the list as UTF-8, one key a line")]
    NotUtf8 {
        /// Counted from 1; of NUL-separated keys, the number of the key.
        line: u64,
    },
    /// The line is longer than any key. The next call goes on with the line after it.
    #[error(
        "line {line} of the list of keys is longer than {LONGEST} bytes, and no key is: write one key a \
         line"
    )]
    TooLong {
        /// Counted from 1.
        line: u64,
    },
    /// The list cannot be read any further.
    #[error("the list of keys cannot be read at line {line}: {source}")]
    Read {
        /// Counted from 1.
        line: u64,
        /// The system's reason.
        source: io::Error,
    },
}

impl KeyListError {
    /// Whether only one key is lost, and the keys after it can be read.
    pub fn is_skippable(&self) -> bool {
        !matches!(self, KeyListError::Read { .. })
    }
}

/// The keys of a list, in its order. Empty lines are skipped; blanks are part of a key.
#[derive(Debug)]
pub struct KeyList<R> {
    reader: R,
    separator: Separator,
    line: u64,
    buffer: Vec<u8>,
    ended: bool,
}

impl<R: BufRead> KeyList<R> {
    /// Reads keys from `reader`, a file or standard input.
    pub fn new(reader: R, separator: Separator) -> KeyList<R> {
        KeyList { reader, separator, line: 0, buffer: Vec::new(), ended: false }
    }

    /// The bytes between two separators as a key; `None` where there are none.
    fn key(&self) -> Option<Result<String, KeyListError>> {
        let bytes = match self.separator {
            Separator::Newline => self.buffer.strip_suffix(b"\r").unwrap_or(&self.buffer),
            Separator::Nul => &self.buffer,
        };
        if bytes.is_empty() {
            return None;
        }
        let key = std::str::from_utf8(bytes).map_err(|_| KeyListError::NotUtf8 { line: self.line });
        Some(key.map(str::to_owned))
    }
}

impl<R: BufRead> Iterator for KeyList<R> {
    type Item = Result<String, KeyListError>;

    fn next(&mut self) -> Option<Self::Item> {
        let separator = match self.separator {
            Separator::Newline => b'\n',
            Separator::Nul => 0,
        };
        while !self.ended {
            self.line += 1;
            match read_line(&mut self.reader, separator, LONGEST, &mut self.buffer) {
                Ok(Line::End) => self.ended = true,
                Ok(Line::TooLong) => return Some(Err(KeyListError::TooLong { line: self.line })),
                Ok(Line::Whole) => {
                    if let Some(key) = self.key() {
                        return Some(key);
                    }
                }
                Err(source) => {
                    self.ended = true;
                    return Some(Err(KeyListError::Read { line: self.line, source }));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn check(list: &[u8], separator: Separator, expected: &[&str]) {
        let keys: Vec<String> = KeyList::new(list, separator)
            .map(|key| key.unwrap_or_else(|error| format!("<{error}>")[..24].to_owned()))
            .collect();
        assert_eq!(keys, expected, "{}", String::from_utf8_lossy(list));
    }

    #[test]
    fn one_key_a_line() {
        check(b"", Separator::Newline, &[]);
        check(b"\n\r\n\n", Separator::Newline, &[]);
        check(b"a\nb/c\n", Separator::Newline, &["a", "b/c"]);
        check(b"a\r\n\r\n b \r\nlast", Separator::Newline, &["a", " b ", "last"]);
        check("k\u{fc}ste\n".as_bytes(), Separator::Newline, &["k\u{fc}ste"]);
    }

    #[test]
    fn nul_leaves_line_ends_in_keys() {
        check(b"a\nb\0\0c\r\0d", Separator::Nul, &["a\nb", "c\r", "d"]);
    }

    #[test]
    fn a_bad_line_has_its_number_and_the_next_is_read() {
        check(b"a\n\n\xff\xfe\nb\n", Separator::Newline, &["a", "<line 3 of the list of k", "b"]);
        let mut long = vec![b'x'; LONGEST + 1];
        long.extend(b"\nb\n");
        check(&long, Separator::Newline, &["<line 1 of the list of k", "b"]);
        let longest = vec![b'x'; LONGEST];
        check(&longest, Separator::Newline, &[std::str::from_utf8(&longest).unwrap()]);
    }

    #[test]
    fn a_reader_that_fails_ends_the_list() {
        struct Broken;
        impl io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        let reader = BufReader::new(io::Read::chain(&b"a\nb"[..], Broken));
        let mut keys = KeyList::new(reader, Separator::Newline);
        assert_eq!(keys.next().unwrap().unwrap(), "a");
        let error = keys.next().unwrap().unwrap_err();
        assert!(matches!(error, KeyListError::Read { line: 2, .. }), "{error}");
        assert!(!error.is_skippable());
        assert!(keys.next().is_none());
    }
}
