//! Builds an index of synthetic keys, and prints what a key costs: `build FILE KEYS KEYS_A_FOLDER`.
//!
//! No folder has more than the last number; 0 puts all into one.

use std::env;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use flatout_erofs::{Index, Kind, Options, ROOT, Writer};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, keys, a_folder] = &arguments[..] else { return Err("build FILE KEYS KEYS_A_FOLDER".into()) };
    let (keys, a_folder): (u64, u64) = (keys.parse()?, a_folder.parse()?);
    let create =
        |path: &str| OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
    let scratch = format!("{path}.scratch");

    let before = peak_kib()?;
    let began = Instant::now();
    let mut writer = Writer::new(create(path)?, create(&scratch)?, Options::default())?;
    let (mut key, mut etag) = (Vec::new(), String::new());
    for number in 0..keys {
        key.clear();
        if let Some(folder) = number.checked_div(a_folder) {
            write!(key, "folder-{folder:013}/")?;
        }
        // Names of 20 bytes.
        write!(key, "image-{number:010}.jpg")?;
        etag.clear();
        std::fmt::Write::write_fmt(&mut etag, format_args!("\"{:032x}\"", u128::from(number) << 64 | 77))?;
        writer.add(&key, 100 << 10, 1_700_000_000 + (number % 1000) as i64, Some(&etag))?;
    }
    let (file, summary) = writer.finish()?;
    let built = began.elapsed();
    let peak = peak_kib()? - before;
    fs::remove_file(&scratch)?;
    drop(file);

    let per_key = |total: f64| total / keys as f64;
    println!("{keys} keys, {a_folder} a folder: {:.2} s", built.as_secs_f64());
    println!("  {:.3} µs a key", per_key(built.as_secs_f64() * 1e6));
    println!("  {:.1} bytes of peak memory a key", per_key(peak as f64 * 1024.0));
    println!("  {:.1} bytes of image a key", per_key(summary.metadata_bytes as f64));
    println!("  {:.1} bytes of image and map a key", per_key(summary.index_bytes as f64));

    let began = Instant::now();
    let index = Index::open(File::open(path)?)?;
    println!("  {:.1} ms to open", began.elapsed().as_secs_f64() * 1e3);
    let count = 20_000;
    let began = Instant::now();
    for lookup in 0..count {
        let block = flatout_erofs::DATA_BLOCK + (lookup * 7_919 * 25 % (keys * 25)) as u32;
        index.object_at(block)?.ok_or("an object is missing")?;
    }
    println!("  {:.1} µs from a block to its object", began.elapsed().as_secs_f64() * 1e6 / count as f64);
    walk(&index)?;
    let began = Instant::now();
    index.verify()?;
    println!("  {:.2} s to verify", began.elapsed().as_secs_f64());
    Ok(())
}

/// Prints what a file costs in a listing of each folder with inodes, and in the walk in the order of keys.
fn walk(index: &Index<File>) -> Result<(), Box<dyn Error>> {
    let files = index.totals().files as f64;
    let began = Instant::now();
    let (mut open, mut inodes) = (vec![ROOT], index.inodes());
    while let Some(nid) = open.pop() {
        for entry in index.entries(&inodes.inode(nid)?) {
            let inode = black_box(inodes.inode(entry?.nid)?);
            if inode.kind == Kind::Folder {
                open.push(inode.nid);
            }
        }
    }
    println!("  {:.3} µs a file to list folders with inodes", began.elapsed().as_secs_f64() * 1e6 / files);

    let began = Instant::now();
    for file in index.files() {
        black_box(file?);
    }
    println!(
        "  {:.3} µs a file to walk all in the order of keys",
        began.elapsed().as_secs_f64() * 1e6 / files
    );
    Ok(())
}

/// The highest resident memory of this process so far.
fn peak_kib() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
