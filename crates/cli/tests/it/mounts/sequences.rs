//! Thousands of random operations on one file, in the mount and on a disk: what fsx does, as far as a file
//! may be written from its start to its end.

use std::process::Command;

use super::Place;
use crate::objects::Buckets;
use crate::program::run;

/// Appends, reads anywhere, closes, opens again, cuts to nothing, synchronizes, renames; then another reader
/// compares the whole.
const SEQUENCE: &str = r#"
import os, random, sys
rng, content = random.Random(int(sys.argv[3])), random.Random(5).randbytes(4 << 20)
mount, disk = sys.argv[1], sys.argv[2]
names, fds = ['file', 'file'], []
def path(side): return os.path.join((mount, disk)[side], names[side])
def opened(flags): return [os.open(path(side), flags, 0o644) for side in (0, 1)]
def both(call):
    one, other = call(0), call(1)
    assert one == other, (operation, step, type(one), len(one) if isinstance(one, bytes) else one, len(other) if isinstance(other, bytes) else other)
fds = opened(os.O_RDWR | os.O_CREAT | os.O_APPEND)
for step in range(int(sys.argv[4])):
    operation = rng.choice(['write'] * 8 + ['read'] * 6 + ['reopen'] * 2 + ['stat', 'sync', 'clear', 'rename', 'other'])
    if operation == 'write':
        length = rng.choice([1, 100, 4096, 70_001, 300_000, 1 << 20, 3_000_000])
        # Not too long: it is the operations that count.
        if os.fstat(fds[1]).st_size < 30 << 20:
            at = rng.randrange(len(content) - length)
            both(lambda side: os.write(fds[side], content[at:at + length]))
    elif operation == 'read':
        size = os.fstat(fds[1]).st_size
        at, length = rng.randrange(size + 10), rng.randrange(1, 500_000)
        both(lambda side: os.pread(fds[side], length, at))
    elif operation == 'reopen':
        for fd in fds: os.close(fd)
        fds = opened(os.O_RDWR | os.O_APPEND)
    elif operation == 'stat': both(lambda side: (os.fstat(fds[side]).st_size, os.stat(path(side)).st_size))
    elif operation == 'sync': both(lambda side: os.fsync(fds[side]))
    elif operation == 'clear' and rng.random() < 0.3: both(lambda side: os.ftruncate(fds[side], 0))
    elif operation == 'rename':
        before = [path(side) for side in (0, 1)]
        names = [f'file{step}'] * 2
        both(lambda side: os.rename(before[side], path(side)))
    elif operation == 'other':
        # Another reader: what was synchronized.
        for fd in fds: os.fsync(fd)
        both(lambda side: open(path(side), 'rb').read())
for fd in fds: os.close(fd)
both(lambda side: open(path(side), 'rb').read())
both(lambda side: sorted(name for name in os.listdir((mount, disk)[side])))
os.remove(path(0)); os.remove(path(1))
"#;

#[test]
fn a_file_is_as_on_a_disk_after_any_sequence() {
    let (origin, place) = (Buckets::new(&[("bucket/d/x", b"x")]), Place::new());
    place.mounted("s3://bucket/work", &origin.url(), &["--supervise"]);
    let disk = place.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let steps = std::env::var("FLATOUT_STEPS").unwrap_or_else(|_| "250".to_owned());
    for seed in 1..=2 {
        let mut python = Command::new("python3");
        python.args(["-c", SEQUENCE]).arg(place.mnt()).arg(&disk).args([&seed.to_string(), &steps]);
        run(&mut python).clean();
    }
    place.unmounted();
}
