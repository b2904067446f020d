//! What is asked of stores, by what they limit.

/// Operations that stores have limits of their own for (reference/cli.md §3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    List,
    Write,
    Delete,
}

impl Class {
    pub(crate) const COUNT: usize = 4;

    /// Which gate its requests pass.
    pub(crate) fn direction(self) -> Direction {
        match self {
            Class::Read | Class::List => Direction::Read,
            Class::Write | Class::Delete => Direction::Write,
        }
    }

    /// Whether its requests carry the bytes of objects: a refusal of one slows the pace down.
    pub(crate) fn carries_bytes(self) -> bool {
        matches!(self, Class::Read | Class::Write)
    }
}

/// Which way the bytes of objects go. Each has a pace of its own: an origin that refuses writes does not slow
/// reading down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the origin.
    #[default]
    Read,
    /// To the origin.
    Write,
}

impl Direction {
    /// `read` or `write`.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

/// What an answer says about how much is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Fine,
    /// 503, 429, or an answer that says that it was held back (`x-oss-qos-delay-time`).
    TooMuch,
}
