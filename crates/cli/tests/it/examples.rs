//! The examples of the help, run as they stand there: by a shell, in a folder of their own, against an origin
//! that has what they name.

use std::process::Command;

use crate::folder::{Folder, names};
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY};
use crate::program::{flatout, run};

/// Everything that an example names.
pub const OBJECTS: &[(&str, &[u8])] = &[
    ("models/llama/model.safetensors", b"weights"),
    ("models/llama/tokenizer.json", b"{}"),
    ("models/readme.txt", b"read me"),
    ("models/big.tar", b"no tar, but then nobody unpacks it here"),
    ("data/a.parquet", b"columns"),
    ("data/tmp/b.parquet", b"left out"),
    ("data/part-0", b"one"),
    ("data/part-1", b"two"),
    ("data/table.parquet", b"PAR1"),
    ("logs/today.zst", b"packed"),
    ("logs/2026-11-21.zst", b"packed"),
    ("logs/2026-11-21/0.zst", b"packed"),
    ("site/index.html", b"old"),
    ("backups/old.zst", b"packed"),
];

/// The lines below `Examples:` in a command's help.
pub fn examples(command: &[&str]) -> Vec<String> {
    let help = run(flatout(&[command, &["--help"]].concat()).env("COLUMNS", "110")).clean();
    let lines = help.text().lines().skip_while(|line| *line != "Examples:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    lines.map(|line| line.trim().to_owned()).collect()
}

/// The line up to the first pipe or redirection: what stands behind is the business of other programs, which
/// may not be there.
pub fn own_part(line: &str) -> &str {
    [" | ", " > "]
        .iter()
        .filter_map(|end| line.split_once(end))
        .map(|(own, _)| own)
        .min_by_key(|own| own.len())
        .unwrap_or(line)
}

#[test]
fn the_examples_work() {
    let buckets = Buckets::new(OBJECTS);
    // Objects with checksums, for those that ask for them.
    for key in ["models/big.tar", "models/llama/model.safetensors"] {
        let (file, url) = (buckets.root().join(key), buckets.url());
        let copy = file.with_extension("copy");
        std::fs::copy(&file, &copy).unwrap();
        let target = format!("s3://{key}");
        let cp = ["cp", copy.to_str().unwrap(), &target, "--endpoint-url", &url, "--no-sign-request"];
        run(&mut flatout(&cp)).clean();
        std::fs::remove_file(copy).unwrap();
    }
    let mut count = 0;
    for command in [
        &[][..],
        &["cp"],
        &["pipe"],
        &["cat"],
        &["ls"],
        &["stat"],
        &["mv"],
        &["rm"],
        &["mb"],
        &["rb"],
        &["presign"],
        &["du"],
        &["hash"],
        &["uploads"],
        &["run"],
        &["config"],
        &["config", "show"],
        &["completions"],
        &["man"],
    ] {
        for example in examples(command) {
            // One deletes what the next names.
            let own;
            let buckets = match command.first() {
                Some(&("mv" | "rm" | "mb" | "rb")) => {
                    own = Buckets::new(OBJECTS);
                    std::fs::create_dir(own.root().join("empty-bucket")).unwrap();
                    &own
                }
                _ => &buckets,
            };
            // What feeds an upload is the business of other programs, too.
            let own = own_part(example.rsplit_once("| ").map_or(&*example, |(before, last)| {
                if before.starts_with("flatout") { &example } else { last }
            }));
            let line = own.replace("http://127.0.0.1:9000", &buckets.url());
            // Several runs each, which tests/it/bench.rs has; a mount, which tests/it/mounts has.
            if line.starts_with("flatout bench") || line.starts_with("flatout mount") {
                continue;
            }
            let here = Folder::new();
            std::fs::create_dir(here.path().join("docs")).unwrap();
            if line.contains("/man1") {
                std::fs::create_dir_all(here.path().join(".local/share/man/man1")).unwrap();
            }
            // What uploads send.
            for file in ["model.safetensors", "report.html"] {
                if line.contains(&format!(" {file} ")) {
                    std::fs::write(here.path().join(file), "content").unwrap();
                }
            }
            if line.starts_with("flatout run") {
                std::fs::write(here.path().join("commands.txt"), "cp s3://models/big.tar .\n").unwrap();
            }
            if line.contains(" checkpoints/ ") {
                std::fs::create_dir(here.path().join("checkpoints")).unwrap();
                std::fs::write(here.path().join("checkpoints/step-1"), "content").unwrap();
            }
            let line = line.replace("/dev/shm/", "./").replace("--profile minio", "");
            let program = flatout(&[]);
            let mut shell = Command::new("sh");
            shell
                .args(["-c", &format!("flatout() {{ \"$FLATOUT\" \"$@\"; }}; {line}")])
                .current_dir(here.path());
            shell.env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
            shell.env("FLATOUT", program.get_program()).env("HOME", here.path());
            shell.env("AWS_ENDPOINT_URL", buckets.url());
            if line.contains("presign") {
                shell.envs([("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)]);
            }
            shell.env("FLATOUT_OSS_ENDPOINT", buckets.url()).stdin(std::process::Stdio::null());
            let ended = run(&mut shell);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{example}");
            check(&example, &here);
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

/// What a copy leaves.
fn check(example: &str, here: &Folder) {
    for (line, folder, files) in [
        ("flatout cp s3://models/llama/model.safetensors .", "", &["docs", "model", "model.safetensors"][..]),
        ("flatout cp http://127.0.0.1:9000/models/readme.txt docs/", "docs", &["readme.txt"]),
        ("flatout cp -r s3://models/llama/ llama/", "llama", &["model.safetensors", "tokenizer.json"]),
        (
            "flatout cp -r s3://data/ . --exclude '/tmp/' --include '*.parquet'",
            "",
            &["a.parquet", "docs", "model", "table.parquet"],
        ),
        ("flatout cp 's3://logs/2026-11-2?/*.zst' logs/", "logs", &["2026-11-21"]),
    ] {
        if example == line {
            assert_eq!(names(&here.path().join(folder)), files, "{example}");
        }
    }
}
