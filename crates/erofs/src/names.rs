//! Which keys can be shown as files: the rule that `flatout mount` has.

/// The longest name, in bytes: Linux's and EROFS's.
const NAME_BYTES_MAX: usize = 255;
/// The longest path in an index, in bytes. Keys of S3 have 1,024 at most.
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// Why a key has no place in a tree of files. Each is about one component of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unnamable {
    #[error("a component is empty")]
    Empty,
    #[error("a component is . or ..")]
    Dots,
    #[error("a component has more than 255 bytes")]
    TooLong,
    #[error("a component contains a NUL")]
    Nul,
}

/// Checks the components of a path, which are separated by slashes.
pub fn check_path(path: &[u8]) -> Result<(), Unnamable> {
    path.split(|&byte| byte == b'/').try_for_each(check)
}

/// Checks one component.
pub(crate) fn check(name: &[u8]) -> Result<(), Unnamable> {
    match name {
        b"" => Err(Unnamable::Empty),
        b"." | b".." => Err(Unnamable::Dots),
        _ if name.len() > NAME_BYTES_MAX => Err(Unnamable::TooLong),
        _ if name.contains(&0) => Err(Unnamable::Nul),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_and_without_a_place() {
        let (long, longest) = (vec![b'x'; 256], vec![b'x'; 255]);
        let table: [(&[u8], Result<(), Unnamable>); 10] = [
            (b"a", Ok(())),
            (b"...", Ok(())),
            (b"a b/\n/\xff", Ok(())),
            (&longest, Ok(())),
            (&long, Err(Unnamable::TooLong)),
            (b"", Err(Unnamable::Empty)),
            (b"a//b", Err(Unnamable::Empty)),
            (b"./a", Err(Unnamable::Dots)),
            (b"a/..", Err(Unnamable::Dots)),
            (b"a/b\0", Err(Unnamable::Nul)),
        ];
        for (path, expected) in table {
            assert_eq!(check_path(path), expected, "{path:?}");
        }
    }
}
