//! Flags of s5cmd that are none here, and what does the like.

/// The flag in either form, and what to do instead.
const FLAGS: &[(&[&str], &str)] = &[
    (
        &["--flatten", "-f"],
        "s5cmd's --flatten has no counterpart: names keep their folders from the first wildcard on; in a file for \
         `flatout run` each line can name its target",
    ),
    (&["--if-size-differ", "-s"], "as s5cmd's --if-size-differ: `flatout sync` copies what differs"),
    (&["--if-source-newer", "-u"], "as s5cmd's --if-source-newer: `flatout sync` copies what differs"),
    (
        &["--concurrency", "-c"],
        "as s5cmd's --concurrency: --parallel says how many parts are in flight; without it the best number is found",
    ),
    (&["-p"], "as s5cmd's -p: --part-size, with a unit, as in 50MiB"),
    (&["--no-follow-symlinks"], "as s5cmd's --no-follow-symlinks: --symlinks skip"),
    (
        &["--raw"],
        "leave it out: an object whose key holds the wildcards themselves comes first, and a \\ before one makes it \
         stand for itself",
    ),
    (&["--show-progress"], "leave it out: on a terminal there is a bar, unless --no-progress says otherwise"),
    (
        &["--source-region", "--destination-region"],
        "leave it out: the region of a bucket is found, or --region says it",
    ),
    (
        &["--force-glacier-transfer"],
        "leave it out: every object is asked for, and one that is not restored is an error",
    ),
    (
        &["--ignore-glacier-warnings"],
        "leave it out: an object that is not restored is an error, and stops no other",
    ),
    (&["--metadata-directive"], "leave it out: a copy keeps the metadata of its source"),
    (&["--retry-count"], "as s5cmd's --retry-count: --retries"),
    (&["--credentials-file"], "AWS_SHARED_CREDENTIALS_FILE names the file"),
];

/// The commands that s5cmd's users write with flags.
const COMMANDS: [&str; 6] = ["cp", "mv", "rm", "ls", "run", "sync"];

/// What to write instead of a flag, in the command that the usage is of.
pub fn hint(flag: &str, usage: &str) -> Option<String> {
    let of = |command: &str| usage.contains(&format!("flatout {command} "));
    let row = FLAGS
        .iter()
        .find(|(names, _)| names.contains(&flag))
        .filter(|_| COMMANDS.iter().any(|command| of(command)))?;
    Some(row.1.to_owned())
}
