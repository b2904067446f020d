//! Writes the seeds of the target `indexes` into `fuzz/corpus/indexes`: small indexes of odd trees, packed.

use std::error::Error;
use std::fs;
use std::io::Cursor;

use flatout_erofs::{Options, Writer};
use flatout_properties::packed;

type Row<'a> = (&'a str, u64, i64, Option<&'a str>);

const MD5: Option<&str> = Some("\"70ee1738b6b21e2c8a43f3a5ab0eee71\"");
const PARTS: Option<&str> = Some("\"70ee1738b6b21e2c8a43f3a5ab0eee71-38\"");

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/indexes");
    fs::create_dir_all(corpus)?;
    let write = |name: &str, options: Options, rows: &[Row<'_>]| -> Result<(), Box<dyn Error>> {
        let mut rows = rows.to_vec();
        rows.sort();
        let mut writer = Writer::new(Cursor::new(Vec::new()), Cursor::new(Vec::new()), options)?;
        for (key, size, modified_s, etag) in rows {
            match key.ends_with('/') {
                true => writer.add_folder(key.as_bytes(), modified_s)?,
                false => writer.add(key.as_bytes(), size, modified_s, etag)?,
            }
        }
        let index = writer.finish()?.0.into_inner();
        fs::write(format!("{corpus}/{name}"), packed(&index))?;
        Ok(())
    };
    let named = |source: &str| Options { source: source.into(), ..Options::default() };
    write("empty", Options::default(), &[])?;
    write("one", Options::default(), &[("a", 1, 1, None)])?;
    write("source", named("s3://bucket/prefix/"), &[("a", 5000, 1_700_000_000, MD5)])?;
    write(
        "etags",
        Options::default(),
        &[
            ("md5", 9, 1, MD5),
            ("parts", 1 << 30, 2, PARTS),
            ("upper", 9, 3, Some("\"5B3C1A2E053D763E1B002CC607C5A0FE\"")),
        ],
    )?;
    write(
        "strings",
        named("oss://b"),
        &[("a", 9, 1, Some("W/\"weak\"")), ("b", 9, 1, Some("")), ("c", 9, 1, Some("\"ä\""))],
    )?;
    // Folders that wait for names that continue theirs.
    let keys = ["a!", "a!/x", "a!-/y", "a-b", "a-b/c", "a.", "a/x", "a/x!", "a/x/y", "a0"];
    write("order", Options::default(), &keys.map(|key| (key, 4096, 7, MD5)))?;
    write("folders", Options::default(), &[("a/", 0, 5, None), ("b/c/", 0, 0, None), ("d/e/f", 0, 9, None)])?;
    let deep = "d/".repeat(60) + "end";
    write("deep", Options::default(), &[(&deep, 1, 1, None)])?;
    let large = Options { uid: 70_000, gid: 3, file_mode: 0o640, folder_mode: 0o750, ..Options::default() };
    write("extended", large, &[("a", 5 << 30, -1, None), ("b", 0, 1 << 33, None), ("c/d", 1, 1, MD5)])?;
    // Two blocks of records.
    let many: Vec<String> = (0..200).map(|name| format!("{name:03}")).collect();
    let many: Vec<Row<'_>> = many.iter().map(|name| (&**name, 1, 1, None)).collect();
    write("records", Options::default(), &many)?;
    // Three pages of dirents, the last behind the inode.
    let long: Vec<String> = (0..60).map(|name| format!("in/{name:02}{}", "x".repeat(150))).collect();
    let long: Vec<Row<'_>> = long.iter().map(|name| (&**name, 1, 1, None)).collect();
    write("pages", Options::default(), &long)?;
    Ok(())
}
