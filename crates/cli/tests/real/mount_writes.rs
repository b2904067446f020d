//! Programs that write into a mounted bucket, at servers that nobody here wrote: what they have closed is in
//! the bucket, as another client sees it and as the next mount does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::guard::installed;
use crate::minio::{Bucket, cache};
use crate::mounts::Mount;
use crate::program::{Ended, run};
use crate::versitygw;

/// A folder of this machine, and a mounted bucket that is to become like it.
struct Place {
    bucket: Bucket,
    local: tempfile::TempDir,
    mount: Mount,
}

impl Place {
    #[track_caller]
    fn new(bucket: Bucket, more: &[&str]) -> Place {
        let local = tempfile::tempdir().unwrap();
        let mount = mounted(&bucket, more);
        Place { bucket, local, mount }
    }

    /// By a shell that ends at the first failure, with `MOUNT` and `LOCAL`.
    #[track_caller]
    fn shell(&self, line: &str) -> Ended {
        let out = self.mount.beside("out");
        fs::create_dir(&out).unwrap();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "240", "bash", "-euo", "pipefail", "-c", line]);
        command.env("MOUNT", self.mount.path()).env("LOCAL", self.local.path()).env("LC_ALL", "C.UTF-8");
        // Of git and Python, in whatever home this runs.
        command.env("HOME", &out).env("PYTHONDONTWRITEBYTECODE", "1");
        run(command.current_dir(&out)).clean()
    }

    #[track_caller]
    fn python(&self, program: &Path, script: &str) -> Ended {
        let file = self.mount.beside("script.py");
        let head = "import os, pathlib\nmount, local = (pathlib.Path(os.environ[name]) for name in ('MOUNT', 'LOCAL'))\n";
        fs::write(&file, format!("{head}{script}")).unwrap();
        self.shell(&format!("{} {}", program.display(), file.display()))
    }

    /// Another mount of the bucket, and another client, see what lies in `local`.
    #[track_caller]
    fn is_as_local(&self) {
        // A folder without files is no object.
        run(Command::new("find").arg(self.local.path()).args(["-type", "d", "-empty", "-delete"])).clean();
        let other = mounted(&self.bucket, &[]);
        let mut diff = Command::new("diff");
        run(diff.arg("-r").arg(self.local.path()).arg(other.path())).clean();
        let copy = self.mount.beside("copy");
        run(&mut self.bucket.flatout(&["cp", "-r", &self.bucket.s3(""), copy.to_str().unwrap()])).clean();
        run(Command::new("diff").arg("-r").arg(self.local.path()).arg(&copy)).clean();
        let uploads = run(&mut self.bucket.flatout(&["uploads", &format!("s3://{}", self.bucket.name)]));
        assert_eq!(uploads.clean().text(), "", "no part is left");
    }
}

#[track_caller]
fn mounted(bucket: &Bucket, more: &[&str]) -> Mount {
    let endpoint = bucket.curl.url.clone();
    let line = [&["--endpoint-url", &endpoint], more].concat();
    let mut command = bucket.flatout(&[]);
    // For the journal of renames.
    command.env("XDG_STATE_HOME", std::env::temp_dir().join(format!("flatout-state-{}", std::process::id())));
    Mount::start(&command, &format!("s3://{}", bucket.name), &line)
}

fn python_of(environment: &str) -> PathBuf {
    installed("python", &[cache().join(environment).join("bin/python")]).into()
}

/// One after the other on a disk and in the mount, and the same must come of both.
const STEPS: &str = r#"
import random
rng = random.Random(7)
content = rng.randbytes(12 << 20)
for base in (local, mount):
    rng.seed(1)
    (base / 'empty').write_bytes(b'')
    (base / 'small').write_bytes(content[:1000])
    (base / 'exact').write_bytes(content[:1 << 20])
    # Longer than a buffer, than a part; in pieces of many sizes.
    for name, length in [('parts', 9 << 20), ('many', 12 << 20), ('long', 3 << 20)]:
        with open(base / name, 'wb', buffering=0) as file:
            at = 0
            while at < length:
                piece = min(rng.randrange(1, 400_000), length - at)
                assert file.write(content[at:at + piece]) == piece
                at += piece
    # What is added to a short file, to a long one, which the origin copies, and after fsync.
    for name in ['empty', 'small', 'parts', 'many']:
        for length in [1, 100_000, 2 << 20]:
            with open(base / name, 'ab') as file:
                file.write(content[:length])
    with open(base / 'log', 'ab', buffering=0) as file:
        for line in range(40):
            file.write(b'line %d\n' % line)
            if line % 10 == 0: os.fsync(file.fileno())
    with open(base / 'long', 'r+b') as file: file.truncate(0)
    (base / 'cut').write_bytes(content[:3 << 20]); (base / 'cut').write_bytes(b'cut')
    # Names.
    os.makedirs(base / 'a/b/c'); (base / 'a/b/c/f').write_bytes(b'f'); (base / 'a/g').write_bytes(b'g')
    os.rename(base / 'small', base / 'a/renamed'); os.replace(base / 'exact', base / 'cut')
    os.rename(base / 'a/b', base / 'moved'); os.unlink(base / 'a/g')
    try: open(base / 'cut', 'xb'); raise SystemExit('it is there')
    except FileExistsError: pass
    open(base / 'ä new', 'xb').close()
    (base / 'gone').write_bytes(b'x'); os.unlink(base / 'gone')
    os.mkdir(base / 'd'); os.rmdir(base / 'd')
    try: os.rmdir(base / 'moved'); raise SystemExit('it is not empty')
    except OSError as error: assert error.errno == 39, error
"#;

#[test]
fn steps_at_minio() {
    let place = Place::new(Bucket::new("written-steps"), &[]);
    place.python(Path::new("python3"), STEPS);
    place.is_as_local();
}

#[test]
fn steps_at_versitygw() {
    let place = Place::new(versitygw::bucket("written-steps"), &[]);
    place.python(Path::new("python3"), STEPS);
    place.is_as_local();
}

#[test]
fn programs_write_into_a_bucket_of_minio() {
    let place = Place::new(Bucket::new("written-programs"), &["--attributes", "ignore"]);
    let make = r#"
mkdir $LOCAL/tree $LOCAL/tree/{a,b} $LOCAL/tree/a/c
for n in 0 1 4095 4096 131073 1048577 9437191; do head -c $n /dev/urandom > "$LOCAL/tree/file $n"; cp "$LOCAL/tree/file $n" $LOCAL/tree/a/c; done
"#;
    place.shell(make);
    place.shell("cp -a $LOCAL/tree $MOUNT; diff -r $LOCAL/tree $MOUNT/tree");
    place.shell("tar -C $LOCAL -cf t.tar tree; for at in $LOCAL $MOUNT; do mkdir $at/tar; tar -C $at/tar -xf t.tar; done");
    // Twice: the second finds nothing to do.
    place.shell(
        "for at in $LOCAL $MOUNT; do rsync -a $LOCAL/tree/ $at/rsync/; done
         rsync -a --size-only --itemize-changes $LOCAL/tree/ $MOUNT/rsync/ | grep '^>f' && exit 1 || true",
    );
    place.shell("for at in $LOCAL $MOUNT; do echo one > $at/words; seq 5 >> $at/words; cat $at/words $at/words > $at/twice; done");
    place.is_as_local();
}

#[test]
fn git_works_in_a_bucket_of_minio() {
    let place = Place::new(Bucket::new("written-git"), &["--attributes", "ignore"]);
    place.shell(
        r#"
git config --global user.email a@b; git config --global user.name ab; git config --global core.fileMode false
git config --global protocol.file.allow always; git config --global safe.directory '*'
git init -q source; cd source
for n in $(seq 30); do mkdir -p d$((n % 4)); seq $n 500 > d$((n % 4))/f$n; git add .; git commit -qm "$n"; done
git clone -q --no-local . $MOUNT/clone
cd $MOUNT/clone; git fsck --full --strict; echo more >> d1/f1; git commit -qam more; git checkout -q HEAD~5; git checkout -q -
git log --oneline | wc -l | grep -qx 31; git status --porcelain | wc -l | grep -qx 0; git fsck --full
cp -r $MOUNT/clone $LOCAL/clone
"#,
    );
    place.is_as_local();
}

#[test]
fn fio_verifies_what_it_has_written() {
    let place = Place::new(Bucket::new("written-fio"), &[]);
    for direct in ["0", "1"] {
        place.shell(&format!(
            "fio --name=v{direct} --directory=$MOUNT --rw=write --bs=256k --size=24m --numjobs=3 --direct={direct} \
             --verify=crc32c --do_verify=1 --verify_fatal=1 --fallocate=none --overwrite=0 --end_fsync=1 \
             --file_append=0 --ioengine=psync --invalidate=0 >/dev/null"
        ));
    }
}

/// A checkpoint, tables, archives: each is read again by its own reader, from another mount.
#[test]
fn libraries_of_python_write_files_that_they_read() {
    let place = Place::new(Bucket::new("written-libraries"), &["--attributes", "ignore"]);
    let write = r#"
import shutil, tempfile, zipfile, io
import duckdb, numpy, pyarrow, pyarrow.parquet
duckdb.connect().execute(f"COPY (SELECT range AS n, hash(range) AS h FROM range(300000)) TO '{mount}/duck.parquet'")
duckdb.connect().execute(f"COPY (SELECT range AS n FROM range(1000)) TO '{mount}/duck.csv'")
pyarrow.parquet.write_table(pyarrow.table({'n': list(range(200000))}), mount / 'arrow.parquet')
numpy.save(mount / 'array.npy', numpy.arange(1_000_000))
with tempfile.NamedTemporaryFile(dir=mount, delete=False) as file: file.write(b'x' * 3_000_000)
os.rename(file.name, mount / 'temporary')
shutil.copytree('/etc/apt', mount / 'apt', copy_function=shutil.copyfile, ignore_dangling_symlinks=True)
shutil.move(mount / 'apt', mount / 'moved')
with open(mount / 'all.zip', 'wb', buffering=0) as raw:
    class Stream(io.RawIOBase):
        def writable(self): return True
        def write(self, b): return raw.write(b)
    with zipfile.ZipFile(Stream(), 'w') as archive: archive.writestr('a', b'a' * 100_000)
"#;
    place.python(&python_of("python"), write);
    let read = r#"
import zipfile
import duckdb, numpy, pyarrow.parquet
assert duckdb.connect().execute(f"SELECT count(*), sum(n) FROM '{mount}/duck.parquet'").fetchone() == (300000, 44999850000)
assert duckdb.connect().execute(f"SELECT max(n) FROM '{mount}/duck.csv'").fetchone() == (999,)
assert pyarrow.parquet.read_table(mount / 'arrow.parquet')['n'][-1].as_py() == 199999
assert numpy.load(mount / 'array.npy').sum() == 499999500000
assert (mount / 'temporary').stat().st_size == 3_000_000
files = lambda top: sorted(name for _, _, names in os.walk(top) for name in names)
assert files(mount / 'moved') == files('/etc/apt')
assert zipfile.ZipFile(mount / 'all.zip').read('a') == b'a' * 100_000
"#;
    place.python(&python_of("python"), read);
    let other = Place::new(place.bucket.clone(), &[]);
    other.python(&python_of("python"), read);
}

#[test]
fn torch_saves_a_checkpoint() {
    let place = Place::new(Bucket::new("written-torch"), &[]);
    let python = python_of("package-torch");
    let make = "import torch\nstate = {f'layer{n}': torch.arange(n * 100_000, dtype=torch.float32) for n in range(40)}\n";
    // Its archive is written from its start to its end, by a file that was opened and by a name.
    place.python(
        &python,
        &format!("{make}torch.save(state, mount / 'named.pt')\nwith open(mount / 'opened.pt', 'wb') as file: torch.save(state, file)\n"),
    );
    let read = format!(
        "{make}for name in ['named.pt', 'opened.pt']:\n for found in [torch.load(mount / name), torch.load(open(mount / name, 'rb'))]:\n  assert all(torch.equal(found[key], state[key]) for key in state), name\n"
    );
    place.python(&python, &read);
    Place::new(place.bucket.clone(), &[]).python(&python, &read);
}
