//! The files that may contain `unsafe`, each with its reason.

use crate::code::has_word;
use crate::complaint::Complaint;
use crate::sources::{Source, Sources};

/// File, and why a safe way does not suffice.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/engine/src/client/mod.rs", "a caller's buffer becomes a landing for as long as the call lasts"),
    ("crates/engine/src/net/socket.rs", "SO_RCVLOWAT, which neither std nor socket2 has"),
    ("crates/engine/src/disk/writeback.rs", "sync_file_range(2), which neither std nor rustix has"),
    ("crates/engine/src/sink/landing.rs", "attempts write disjoint ranges of one buffer at the same time"),
    (
        "crates/engine/src/read/segment.rs",
        "replies refer to bytes that have landed while others land beside them",
    ),
    (
        "crates/engine/src/memory/lease.rs",
        "pages that are reused without being zeroed, and shared by address",
    ),
    ("crates/engine/src/sim/run.rs", "a simulated caller lends its buffer as a real one does"),
    ("crates/engine/src/sink/stream.rs", "a reader and a writer use disjoint bytes of one room"),
    ("crates/engine/tests/weights/allocator.rs", "an allocator that counts, which is unsafe by its trait"),
    (
        "crates/mount/src/inherited_fd.rs",
        "a descriptor that the process was started with is known by its number only",
    ),
    ("crates/mount/src/own_table.rs", "a thread that is to keep no descriptor of its process open"),
    (
        "crates/python/src/borrowed_buffer.rs",
        "buffers of Python's, which their exporters keep in place while we read or write them",
    ),
    ("crates/python/src/buffer.rs", "Python's buffer protocol, which is pointers"),
    (
        "crates/python/src/destination.rs",
        "memory of Python's is lent to a transfer, which owns it until its end",
    ),
    ("crates/python/src/dlpack.rs", "DLPack's structures, which are pointers and functions of C"),
    ("crates/python/src/interpreters.rs", "which interpreter this is, which only C tells"),
    ("crates/python/src/uninit_bytes.rs", "a `bytes` that is filled before any Python code sees it"),
    (
        "crates/cli/src/sys.rs",
        "a look at descriptor 1 before main, a call between fork and exec, glibc's version, a buffer lent for ever",
    ),
    (
        "crates/cli/tests/it/mountinfo.rs",
        "unshare(2) of one thread, which rustix has as unsafe only, and unshare(1) for a program",
    ),
];

pub fn check(sources: &Sources) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for source in sources.rust.iter().filter(|source| !allowed(source)) {
        complaints.extend(first_unsafe(source).map(|line| {
            let say = "`unsafe` may not stand here: write it safely, move it into a file that ALLOWED in \
                       xtask/src/unsafety.rs names, or add this file there with the reason why the safe way will not do";
            Complaint::new(&source.path, line, say)
        }));
    }
    complaints.extend(unforbidden(sources));
    complaints.extend(idle_rows(sources));
    complaints
}

/// Roots of crates that need no `unsafe` and do not say so to the compiler.
fn unforbidden(sources: &Sources) -> impl Iterator<Item = Complaint> {
    let roots = sources.rust.iter().filter(|source| {
        let root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
        let needs = ALLOWED
            .iter()
            .any(|(path, _)| Source::new(path, String::new()).component() == source.component());
        root && !needs && !source.code.contains("#![forbid(unsafe_code)]")
    });
    roots.map(|root| {
        Complaint::new(&root.path, 0, "holds no `unsafe`: write `#![forbid(unsafe_code)]` after the `//!`")
    })
}

/// Rows of the list whose file has no `unsafe` any more.
fn idle_rows(sources: &Sources) -> impl Iterator<Item = Complaint> {
    let idle = ALLOWED.iter().filter(|(path, _)| {
        !sources.rust.iter().any(|source| source.path == *path && first_unsafe(source).is_some())
    });
    idle.map(|(path, _)| {
        Complaint::new(
            "xtask/src/unsafety.rs",
            0,
            format!("ALLOWED names {path}, which holds no `unsafe`: take the row out"),
        )
    })
}

fn allowed(source: &Source) -> bool {
    ALLOWED.iter().any(|(path, _)| source.path == *path)
}

fn first_unsafe(source: &Source) -> Option<usize> {
    source.code.lines().position(|line| has_word(line, "unsafe")).map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use crate::sources::of;

    /// What is said about one file; rows of the list that are idle here are left out.
    #[track_caller]
    fn check(path: &str, text: &str, want: Option<&str>) {
        let said = super::check(&of(&[(path, text)]));
        let said: Vec<String> =
            said.iter().filter(|c| c.path != "xtask/src/unsafety.rs").map(ToString::to_string).collect();
        match want {
            None => assert!(said.is_empty(), "{path}: {said:?}"),
            Some(want) => assert!(said.iter().any(|line| line.starts_with(want)), "{path}: {said:?}"),
        }
    }

    #[test]
    fn unsafe_stands_only_where_listed() {
        let call = "//! X.\nfn f() { unsafe { g() } }\n";
        let table: &[(&str, &str, Option<&str>)] = &[
            (
                "crates/wire/src/range.rs",
                call,
                Some("crates/wire/src/range.rs:2: `unsafe` may not stand here"),
            ),
            ("crates/wire/tests/range.rs", call, Some("crates/wire/tests/range.rs:2:")),
            ("crates/cli/src/sys.rs", call, None),
            ("crates/wire/src/range.rs", "//! No unsafe.\n/* unsafe */ fn f() { g(\"unsafe\") }", None),
            ("crates/wire/src/lib.rs", "//! X.\n", Some("crates/wire/src/lib.rs: holds no `unsafe`: write")),
            ("crates/wire/src/lib.rs", "//! X.\n#![forbid(unsafe_code)]\n", None),
            ("crates/engine/src/lib.rs", "//! X.\n", None),
        ];
        for (path, text, want) in table {
            check(path, text, *want);
        }
    }

    #[test]
    fn a_row_that_names_nothing_is_said() {
        let said = super::check(&of(&[("crates/cli/src/sys.rs", "unsafe fn f() {}")]));
        assert!(said.iter().any(|c| c.say.contains("crates/engine/src/memory/lease.rs")));
        assert!(!said.iter().any(|c| c.say.contains("crates/cli/src/sys.rs")));
    }
}
