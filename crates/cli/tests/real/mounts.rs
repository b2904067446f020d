//! A mounted bucket under the programs that people read with: what they find is what lies in a folder of this
//! machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::bytes;
use crate::guard::{Guard, installed};
use crate::minio::{Bucket, cache};
use crate::mountinfo::is_mounted;
use crate::nginx::Site;
use crate::program::{Ended, run};
use crate::served;

/// A mount of a test's own, which goes when this is dropped and when the tests are killed.
pub struct Mount {
    guard: Guard,
    point: PathBuf,
}

impl Mount {
    /// With the variables of `command`.
    #[track_caller]
    pub fn start(command: &Command, source: &str, more: &[&str]) -> Mount {
        Mount::by(&["mount"], command, source, more)
    }

    /// Of an index of `source`, which is built first.
    #[track_caller]
    pub fn of_index(flatout: impl Fn(&[&str]) -> Command, source: &str, more: &[&str]) -> Mount {
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join("index").display().to_string();
        run(&mut flatout(&["volume", "build", source, &index])).clean();
        // It has the index open.
        Mount::by(&["volume", "mount"], &flatout(&[]), &index, more)
    }

    #[track_caller]
    fn by(verb: &[&str], command: &Command, source: &str, more: &[&str]) -> Mount {
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().join("mounted");
        fs::create_dir(&point).unwrap();
        let mut mount = Command::new(env!("CARGO_BIN_EXE_flatout"));
        mount.args(verb).arg(source).arg(&point).arg("--foreground").args(more);
        mount.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut guard = Guard::start_mount(folder, &point, &mount);
        guard.wait_for("flatout mount", |_| is_mounted(&point).then_some(()));
        Mount { guard, point }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        self.guard.log()
    }

    /// A new path beside it.
    pub fn beside(&self, name: &str) -> PathBuf {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        self.guard.folder().join(format!("{}-{name}", NUMBER.fetch_add(1, Ordering::Relaxed)))
    }
}

/// A folder of this machine, and the same in a bucket that is mounted.
struct Twins {
    mount: Mount,
    local: PathBuf,
    _made: Option<tempfile::TempDir>,
}

impl Twins {
    /// In a bucket of MinIO.
    #[track_caller]
    fn new(bucket: &str, make: impl FnOnce(&Path)) -> Twins {
        let local = tempfile::tempdir().unwrap();
        make(local.path());
        let bucket = Bucket::new(bucket);
        upload(&bucket, local.path(), "");
        let endpoint = bucket.curl.url.clone();
        let mount = Mount::start(
            &bucket.flatout(&[]),
            &format!("s3://{}", bucket.name),
            &["--endpoint-url", &endpoint],
        );
        Twins { mount, local: local.path().to_owned(), _made: Some(local) }
    }

    fn of(mount: Mount, local: &Path) -> Twins {
        Twins { mount, local: local.to_owned(), _made: None }
    }

    /// The command line with `MOUNT` and `LOCAL` for the two folders, by a shell that ends at the first
    /// failure. Nothing is in the page cache: dd has the kernel let go of a file, and copies none of it.
    #[track_caller]
    fn shell(&self, line: &str) -> Ended {
        let out = self.mount.beside("out");
        fs::create_dir(&out).unwrap();
        let mut command = Command::new("timeout");
        let line =
            format!("find $MOUNT -type f -exec dd if={{}} iflag=nocache count=0 status=none ';'\n{line}");
        command.args(["--kill-after=5", "240", "bash", "-euo", "pipefail", "-c", &line]);
        command.env("MOUNT", self.mount.path()).env("LOCAL", &self.local).env("OUT", &out);
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("LC_ALL", "C.UTF-8");
        run(command.current_dir(&out)).clean()
    }

    /// A script in the environment of `scripts/deps.sh`, which finds the folders in `mount`, `local` and
    /// `out`.
    #[track_caller]
    fn python(&self, script: &str) -> Ended {
        let python = installed("python", &[cache().join("python/bin/python")]);
        self.script(Path::new(&python), script)
    }

    #[track_caller]
    fn script(&self, python: &Path, script: &str) -> Ended {
        let head = "import os, pathlib\nmount, local, out = (pathlib.Path(os.environ[name]) for name in ('MOUNT', 'LOCAL', 'OUT'))\n";
        let file = self.mount.beside("script.py");
        fs::write(&file, format!("{head}{script}")).unwrap();
        self.shell(&format!("{} {}", python.display(), file.display()))
    }
}

fn upload(bucket: &Bucket, folder: &Path, prefix: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let key = format!("{prefix}{}", entry.file_name().to_str().expect("names of text"));
        match entry.file_type().unwrap().is_dir() {
            true => upload(bucket, &entry.path(), &format!("{key}/")),
            false => bucket.put(&key, &fs::read(entry.path()).unwrap(), &[]),
        }
    }
}

/// Files of every size that is special to somebody, in folders.
fn some_files(folder: &Path) {
    let sizes = [0, 1, 4095, 4096, 4097, 131_072, 131_073, 1 << 20, (1 << 20) + 1, (9 << 20) + 7];
    for (number, size) in sizes.into_iter().enumerate() {
        let below = folder.join(["", "a", "a/b", "c and d", "ünder"][number % 5]);
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join(format!("file {number}-{size}")), bytes(size)).unwrap();
    }
    fs::write(folder.join("a/words"), "one\ntwo needle three\n").unwrap();
}

/// Copied whole, and read here and there: through the page cache, past it, mapped, and within the kernel.
#[track_caller]
fn check_reads(twins: &Twins, takes_direct: bool) {
    twins.shell("cp -r $MOUNT copy; diff -r $LOCAL copy");
    twins.shell("tar -C $MOUNT -cf all.tar .; mkdir copy; tar -C copy -xf all.tar; diff -r $LOCAL copy");
    let script = r#"
import ctypes, errno, fcntl, mmap, random
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def check(how, path, fetch, whole):
    places = random.Random(1)
    for _ in range(100):
        at, length = places.randrange(len(whole) + 1), places.randrange(1, 300_000)
        assert fetch(at, length) == whole[at:at + length], (how, path, at, length)
def cold(file):
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
def piped(file, at, length):
    source, sink = os.pipe()
    fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, 1 << 20)
    moved, got = 1, b""
    while moved and len(got) < length:
        moved = os.splice(file, sink, min(length - len(got), 65536), offset_src=at + len(got))
        got += os.read(source, moved) if moved else b""
    os.close(source); os.close(sink)
    return got
def sent(file, at, length):
    with open(out / "sent", "w+b") as target:
        moved, all = 1, 0
        while moved and all < length:
            moved = os.sendfile(target.fileno(), file, at + all, length - all)
            all += moved
        target.seek(0)
        return target.read()
names = [path.relative_to(local) for path in local.rglob("*") if path.is_file()]
assert max((local / name).stat().st_size for name in names) > 7 << 20
for name in names:
    whole, path = (local / name).read_bytes(), mount / name
    assert path.stat().st_size == len(whole), path
    file = os.open(path, os.O_RDONLY)
    try:
        direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
        check("direct", path, lambda at, length: os.pread(direct, length, at), whole)
        os.close(direct)
    except OSError as error:
        assert not takes_direct and error.errno == errno.EINVAL, (path, error)
    else:
        assert takes_direct, path
    for how, fetch in [("buffered", lambda file, at, length: os.pread(file, length, at)), ("sendfile", sent), ("splice", piped)]:
        cold(file)
        check(how, path, lambda at, length: fetch(file, at, length), whole)
    cold(file)
    if whole:
        with mmap.mmap(file, 0, prot=mmap.PROT_READ) as mapped:
            check("mapped", path, lambda at, length: mapped[at:at + length], whole)
        # What lies between the end and that of its page is zeros, also where the kernel asks for the page.
        mapping = libc.mmap(None, len(whole), mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
        assert mapping != ctypes.c_void_p(-1).value, path
        rest = -len(whole) % mmap.PAGESIZE
        assert ctypes.string_at(mapping + len(whole), rest) == bytes(rest), path
        assert libc.munmap(mapping, len(whole)) == 0
    cold(file)
    assert path.read_bytes() == whole, path
    os.close(file)
"#;
    let told = if takes_direct { "takes_direct = True" } else { "takes_direct = False" };
    twins.python(&format!("{told}\n{script}"));
    twins.shell("diff -r $LOCAL $MOUNT");
}

#[test]
fn all_of_it_is_the_same() {
    check_reads(&Twins::new("mount-reads", some_files), true);
}

#[test]
fn all_of_an_index_is_the_same() {
    let local = tempfile::tempdir().unwrap();
    some_files(local.path());
    let bucket = Bucket::new("index-reads");
    upload(&bucket, local.path(), "");
    for by in [&[][..], &["--read-ahead"], &["--fuse"]] {
        let more = [&["--endpoint-url", &bucket.curl.url], by].concat();
        let source = format!("s3://{}", bucket.name);
        let mount = Mount::of_index(|line| bucket.flatout(line), &source, &more);
        let twins = Twins::of(mount, local.path());
        // EROFS takes no O_DIRECT over a file.
        check_reads(&twins, by == ["--fuse"]);
    }
}

#[test]
fn copies_are_the_same() {
    let twins = Twins::new("mount-copies", some_files);
    twins.shell("rsync -r --times $MOUNT/ copy/; diff -r $LOCAL copy; test -z \"$(rsync -rn --times -i $MOUNT/ copy/)\"");
    twins.python("import shutil, subprocess; shutil.copytree(mount, out / 'copy'); subprocess.run(['diff', '-r', local, out / 'copy'], check=True)");
    twins.shell(
        "dd if=\"$MOUNT/ünder/file 9-9437191\" of=direct bs=1M iflag=direct status=none;
         cmp direct \"$LOCAL/ünder/file 9-9437191\";
         dd if=\"$MOUNT/ünder/file 9-9437191\" bs=4k skip=777 count=3 iflag=direct status=none | cmp - <(dd if=\"$LOCAL/ünder/file 9-9437191\" bs=4k skip=777 count=3 status=none)",
    );
}

#[test]
fn searches_find_the_same() {
    let twins = Twins::new("mount-searches", some_files);
    twins.shell("cmp <(cd $MOUNT; grep -rl needle . | sort) <(cd $LOCAL; grep -rl needle . | sort)");
    twins.shell("test \"$(grep -rc needle $MOUNT | grep -c ':1$')\" = 1");
    let found = "find . -type f -printf '%P %s\\n' | sort";
    twins.shell(&format!("cmp <(cd $MOUNT; {found}) <(cd $LOCAL; {found})"));
    twins.shell("cmp <(cd $MOUNT; find . -size +1M | sort) <(cd $LOCAL; find . -size +1M | sort)");
    twins.shell("cmp <(cd $MOUNT; find . -type d | sort) <(cd $LOCAL; find . -type d | sort)");
    twins.shell("cmp <(cd $MOUNT; wc -c */file* | sort) <(cd $LOCAL; wc -c */file* | sort)");
}

/// fio reads what it wrote elsewhere, and looks at the sums that it put into each block.
#[test]
fn fio_verifies() {
    let twins = Twins::new("mount-fio", |folder| {
        let mut fio = Command::new("fio");
        fio.args([
            "--name=made",
            "--filename=made",
            "--size=48M",
            "--bs=64k",
            "--rw=write",
            "--verify=crc32c",
        ]);
        run(fio.args(["--do_verify=0"]).current_dir(folder)).clean();
    });
    let verify = "fio --name=read --filename=$MOUNT/made --readonly --size=48M --bs=64k --verify=crc32c --verify_fatal=1 --thread";
    for how in [
        "--rw=read --direct=1 --ioengine=libaio --iodepth=8",
        "--rw=read --direct=0 --ioengine=psync",
        "--rw=randread --direct=1 --ioengine=libaio --iodepth=32",
        "--rw=randread --direct=0 --ioengine=mmap",
        "--rw=read --direct=0 --ioengine=psync --numjobs=4",
    ] {
        let said = twins.shell(&format!("{verify} {how}")).text().to_owned();
        assert!(said.contains("err= 0") && said.contains("READ:"), "{how}: {said}");
    }
    // It would have noticed: the same file with a byte changed.
    let noticed = "cp $LOCAL/made made; printf x | dd of=made bs=1 seek=1000000 conv=notrunc status=none;
        ! fio --name=read --filename=made --readonly --size=48M --bs=64k --verify=crc32c --verify_fatal=1 --rw=read >said 2>&1";
    twins.shell(noticed);
}

#[test]
fn python_imports() {
    let twins = Twins::new("mount-python", |folder| {
        let package = folder.join("packages/greeting/below");
        fs::create_dir_all(&package).unwrap();
        fs::write(folder.join("packages/greeting/__init__.py"), "from .below.words import hello\n").unwrap();
        fs::write(package.join("__init__.py"), "").unwrap();
        fs::write(package.join("words.py"), "def hello(): return 'hello from the bucket'\n").unwrap();
    });
    twins.python(
        "import sys; sys.path.insert(0, str(mount / 'packages')); import greeting; assert greeting.hello() == 'hello from the bucket'",
    );
}

/// That of Debian 13.
fn with_torch() -> String {
    installed("package-torch", &[cache().join("package-torch/bin/python")])
}

#[test]
fn tables_and_models_are_read() {
    let made = |folder: &Path| {
        let script = r#"
import sys, zipfile, numpy, pyarrow, pyarrow.parquet
from safetensors.numpy import save_file
numpy.random.seed(1)
table = pyarrow.table({"number": numpy.arange(200_000), "value": numpy.random.rand(200_000), "word": [f"w{n % 97}" for n in range(200_000)]})
pyarrow.parquet.write_table(table, "table.parquet", row_group_size=20_000)
save_file({f"layer.{n}": numpy.random.rand(257, 300).astype(numpy.float32) for n in range(24)}, "model.safetensors")
numpy.save("array.npy", numpy.random.rand(500, 700))
with zipfile.ZipFile("all.zip", "w") as all:
    for n in range(50): all.writestr(f"{n}.txt", f"content {n}" * 1000)
"#;
        let mut python = Command::new(installed("python", &[cache().join("python/bin/python")]));
        run(python.args(["-c", script]).current_dir(folder)).clean();
        let script = "import torch; torch.manual_seed(1); torch.save({f'w{n}': torch.rand(300, 400) for n in range(12)}, 'model.pt')";
        let mut python = Command::new(with_torch());
        run(python.args(["-c", script]).current_dir(folder)).clean();
    };
    let twins = Twins::new("mount-tables", made);
    twins.python(
        r#"
import pyarrow.parquet
assert pyarrow.parquet.read_table(mount / "table.parquet").equals(pyarrow.parquet.read_table(local / "table.parquet"))
some = [pyarrow.parquet.ParquetFile(place / "table.parquet").read_row_group(7, columns=["value"]) for place in (mount, local)]
assert some[0].equals(some[1]) and some[0].num_rows == 20_000
"#,
    );
    twins.python(
        r#"
import duckdb
ask = "select word, count(*), round(sum(value), 6) from '{}/table.parquet' where number > 150000 group by word order by word"
found = [duckdb.sql(ask.format(place)).fetchall() for place in (mount, local)]
assert found[0] == found[1] and len(found[0]) == 97
"#,
    );
    twins.python(
        r#"
import numpy, zipfile
from safetensors import safe_open
with safe_open(mount / "model.safetensors", framework="numpy") as a, safe_open(local / "model.safetensors", framework="numpy") as b:
    names = sorted(a.keys(), reverse=True)
    assert len(names) == 24
    for name in names:
        assert numpy.array_equal(a.get_tensor(name), b.get_tensor(name)), name
assert numpy.array_equal(numpy.load(mount / "array.npy", mmap_mode="r")[::7], numpy.load(local / "array.npy")[::7])
with zipfile.ZipFile(mount / "all.zip") as all:
    assert len(all.namelist()) == 50 and all.read("37.txt") == b"content 37" * 1000 and all.testzip() is None
"#,
    );
    twins.script(
        Path::new(&with_torch()),
        r#"
import torch
a, b = (torch.load(place / "model.pt") for place in (mount, local))
assert a.keys() == b.keys() and len(a) == 12 and all(torch.equal(a[name], b[name]) for name in a)
"#,
    );
}

/// nginx knows nothing of S3: what it answers to who lists was written by hand, with the tags that it gives
/// its files.
#[test]
fn files_of_nginx_are_read() {
    let site = Site::new("listed");
    let files = [("one", bytes(100)), ("model.bin", bytes((7 << 20) + 5)), ("empty", Vec::new())];
    let rows: String = files.iter().map(|(name, body)| row(&site, name, body)).collect();
    let answer = |rows: &str| {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Name>listed</Name><Prefix></Prefix><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        )
    };
    let beside = site.folder.parent().unwrap();
    for (name, rows) in [("listing", rows.as_str()), ("empty", "")] {
        fs::write(beside.join(format!("listed-{name}.xml")), answer(rows)).unwrap();
    }
    let endpoint = site.url.strip_suffix("/listed").unwrap();
    let mount =
        Mount::start(&crate::flatout(&[]), "s3://listed", &["--endpoint-url", endpoint, "--no-sign-request"]);
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 3);
    assert_eq!(fs::read(mount.at("none")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    check_reads(&Twins::of(mount, &site.folder), true);
}

fn row(site: &Site, name: &str, body: &[u8]) -> String {
    site.put(name, body);
    let modified = fs::metadata(site.folder.join(name)).unwrap().modified().unwrap();
    let modified_s = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    format!(
        "<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
         <ETag>&quot;{modified_s:x}-{:x}&quot;</ETag><Size>{}</Size></Contents>",
        body.len(),
        body.len()
    )
}

#[test]
fn both_dialects_of_our_own_origin_are_read() {
    let store = tempfile::tempdir().unwrap();
    let local = store.path().join("twins");
    fs::create_dir(&local).unwrap();
    some_files(&local);
    let keys = ["--access-key", served::ACCESS_KEY, "--secret-key", served::SECRET_KEY];
    let served = served::Served::start(&[&["--root", store.path().to_str().unwrap()], &keys[..]].concat());
    let url = served.curl.url.as_str();
    let mut oss = crate::flatout(&[]);
    oss.envs([("OSS_ACCESS_KEY_ID", served::ACCESS_KEY), ("OSS_ACCESS_KEY_SECRET", served::SECRET_KEY)]);
    for (command, source, endpoint) in [
        (&served.flatout(&[]), "s3://twins", "--endpoint-url"),
        (&oss, "oss://twins", "--oss-endpoint"),
        (&oss, "oss://twins/ünder/", "--oss-endpoint"),
    ] {
        let mount = Mount::start(command, source, &[endpoint, url]);
        let local = if source.ends_with("/ünder/") { local.join("ünder") } else { local.clone() };
        check_reads(&Twins::of(mount, &local), true);
    }
}
