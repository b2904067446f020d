"""Whole trees beside the peers (docs/numbers.md, Trees):
    python3 scripts/trees.py unchanged FLATOUT FOLDER [ROUNDS]      200,000 files, up, that are there already
    python3 scripts/trees.py mixed FLATOUT FOLDER [ROUNDS] [RATE]   one file of 2 GiB and 20,000 of 16 KiB, up and down
    python3 scripts/trees.py run FLATOUT FOLDER [ROUNDS] [BYTES]    20,000 objects of 4 KiB by lines of `run`, and by `cp -r`
FOLDER is made, and removed; on a disk the file system is measured, too (in /dev/shm it is not). Peers are those of the
lab's cache (rclone, s5cmd) and aws on the PATH; one that is not there is left out. Each round runs all of them, in turn; medians are printed, with CPU seconds and the peak of memory.
"""
import os
import shutil
import statistics
import subprocess
import sys
import time

what, flatout, folder = sys.argv[1:4]
rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
more = sys.argv[5:]
rate, size = (more or ["256MiB/s"])[0], int((more or [4 << 10])[0]) if what == "run" else 0
port = 19431
endpoint = f"http://127.0.0.1:{port}"
# Fails where there is one: what is in it is not ours to remove.
os.mkdir(folder)
tree, down, buckets = (os.path.join(folder, name) for name in ("tree", "down", "buckets"))
os.makedirs(os.path.join(buckets, "bucket"))
environment = {
    **os.environ,
    "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "testtest", "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": endpoint,
    "S3_ENDPOINT_URL": endpoint, "RCLONE_CONFIG": "/dev/null", "RCLONE_S3_PROVIDER": "Minio",
    "RCLONE_S3_ACCESS_KEY_ID": "test", "RCLONE_S3_SECRET_ACCESS_KEY": "testtest", "RCLONE_S3_ENDPOINT": endpoint,
    "XDG_CACHE_HOME": os.path.join(folder, "cache"), "XDG_STATE_HOME": os.path.join(folder, "state"),
}

def found(name):
    cache = os.path.expanduser("~/.cache/flatout")
    for root, _, names in os.walk(cache):
        if name in names and os.access(os.path.join(root, name), os.X_OK):
            return os.path.join(root, name)
    return shutil.which(name)

rclone, s5cmd, aws = found("rclone"), found("s5cmd"), found("aws")

def make(count, size):
    for number in range(count):
        path = os.path.join(tree, f"d{number // 1000:03}", f"f{number % 1000:03}")
        if number % 1000 == 0:
            os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            file.write(number.to_bytes(4, "little") * (size // 4))

def timed(command):
    began = time.monotonic()
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{command}: {child.returncode}: {said[-400:].decode(errors='replace')}")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024

def set_aside():
    """Makes room for `down` again. On a disk not by deletion: for minutes ext4 looks past each inode that was just freed,
    which makes 20,000 new files take four times as long. In memory by deletion: a virtual machine's memory that was not
    in use before costs its host a page fault each, which made 2 GiB take 6 s."""
    if folder.startswith("/dev/shm"):
        shutil.rmtree(down, ignore_errors=True)
    elif os.path.exists(down):
        os.rename(down, f"{down}-{time.monotonic_ns()}")

def compare(cases, before=lambda: None):
    rows = {name: [] for name in cases}
    for _ in range(rounds):
        for name, command in cases.items():
            before()
            rows[name].append(timed(command))
    for name, row in rows.items():
        seconds, cpu, peak = (statistics.median(column) for column in zip(*row))
        print(f"{name:28} {seconds:8.2f} s  cpu {cpu:7.2f} s  {peak:6.0f} MiB", flush=True)

def peers(source, target, into):
    """A sync of each peer; `into` is the bucket's side in rclone's words."""
    cases = {"flatout": [flatout, "sync", source, target]}
    if rclone:
        ends = [source, into] if "://" in target else [into, target]
        cases["rclone"] = [rclone, "sync", *ends]
        cases["rclone --fast-list"] = [rclone, "sync", "--fast-list", *ends]
    if s5cmd:
        cases["s5cmd"] = [s5cmd, "sync", *([source + "/", target + "/"] if "://" in target else [source + "/*", target + "/"])]
    if aws:
        cases["aws"] = [aws, "s3", "sync", source, target, "--only-show-errors"]
    return cases

serve = None
def origin(*more):
    global serve
    if serve:
        serve.kill()
        serve.wait()
    command = [flatout, "serve", "--access-key", "test", "--secret-key", "testtest", "--listen", f"127.0.0.1:{port}", *more]
    serve = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)

url = "s3://bucket/tree"
try:
    if what == "unchanged":
        make(200_000, 8)
        time.sleep(2)
        origin("--memory")
        subprocess.run([flatout, "mb", "s3://bucket"], env=environment, check=True)
        subprocess.run([flatout, "sync", tree, url], env=environment, check=True)
        compare(peers(tree, url, ":s3:bucket/tree"))
    elif what == "mixed":
        make(20_000, 16 << 10)
        with open(os.path.join(tree, "large"), "wb") as file:
            for _ in range(256):
                file.write(os.urandom(8 << 20))
        total = (2 << 30) + 20_000 * (16 << 10)
        print(f"{total} bytes at {rate}")
        print("up")
        # A new one each time: it knows what it was sent.
        compare({"flatout": [flatout, "sync", tree, url]}, lambda: origin("--root", buckets, "--sink", "--total", rate))
        shutil.copytree(tree, os.path.join(buckets, "bucket", "tree"))
        origin("--root", buckets, "--total", rate)
        print("down")
        compare({"flatout": [flatout, "sync", url, down]}, set_aside)
    else:
        assert what == "run", what
        make(20_000, size)
        shutil.copytree(tree, os.path.join(buckets, "bucket", "tree"))
        origin("--root", buckets)
        lines, of_s5cmd = os.path.join(folder, "lines"), os.path.join(folder, "of-s5cmd")
        names = sorted(os.path.relpath(os.path.join(root, name), tree) for root, _, found in os.walk(tree) for name in found)
        with open(lines, "w") as file:
            file.writelines(f"cp {url}/{name} {down}/{name}\n" for name in names)
        cases = {"flatout cp -r": [flatout, "cp", "-r", url, down], "flatout run": [flatout, "run", lines]}
        if s5cmd:
            cases["s5cmd run"] = [s5cmd, "run", lines]
        def clear():
            set_aside()
            for number in range(20):
                os.makedirs(os.path.join(down, f"d{number:03}"))
        compare(cases, clear)
finally:
    if serve:
        serve.kill()
        serve.wait()
    shutil.rmtree(folder, ignore_errors=True)
