//! What is asked of stores, by what they limit.

/// What stores have limits of their own for (reference/cli.md §3.6); writing and deleting join with uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Read,
    List,
}

/// What an answer says about how much is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Fine,
    /// 503, 429, or an answer that says that it was held back (`x-oss-qos-delay-time`).
    TooMuch,
}
