"""kill -9 at 20 random moments of a copy of 4 GiB (docs/numbers.md, Resume), in a network of its own so that the
loopback's counter is ours:
    unshare -n sh -c 'ip link set lo up && python3 scripts/resume_kill.py down|up FLATOUT FOLDER [SEED]'
FOLDER is made, and removed. Fails on a wrong byte, or on anything left beside the file, in the state folder or, of an
upload, at the origin.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import time

direction, flatout, folder = sys.argv[1:4]
assert direction in ("down", "up"), direction
size, rate = 4 << 30, "600MiB/s"
endpoint = "http://127.0.0.1:19421"
# Fails where there is one: what is in it is not ours to remove.
os.mkdir(folder)
here, state, buckets = (os.path.join(folder, name) for name in ("here", "state", "buckets"))
for path in (here, state, os.path.join(buckets, "demo")):
    os.makedirs(path)
local, stored = os.path.join(here, "object"), os.path.join(buckets, "demo", "object")
# An origin with an object, or one that keeps what it takes.
store = ["--synthetic", "demo/object=4GiB"] if direction == "down" else ["--root", buckets]
origin = [flatout, "serve", "--no-auth", "--listen", "127.0.0.1:19421", "--total", rate, *store]
serve = subprocess.Popen(origin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(1)
ends = ["s3://demo/object", local] if direction == "down" else [local, "s3://demo/object"]
copy = [flatout, "cp", *ends, "--endpoint-url", endpoint, "--no-sign-request", "--json"]
target, beside = (local, here) if direction == "down" else (stored, os.path.join(buckets, "demo"))
environment = {**os.environ, "XDG_STATE_HOME": state}

def on_wire():
    with open("/proc/net/dev") as lines:
        return int(next(line for line in lines if line.strip().startswith("lo:")).split(":")[1].split()[0])

def digest(path):
    return subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]

def clear():
    for name in os.listdir(beside):
        os.unlink(os.path.join(beside, name))

# Unfinished uploads and their parts, and notes of them.
def left():
    of_parts = (os.path.join(buckets, ".flatout", "uploads"), os.path.join(state, "flatout", "uploads"))
    return [os.path.join(root, name) for path in of_parts for root, _, names in os.walk(path) for name in names]

random.seed(int(sys.argv[4]) if len(sys.argv) > 4 else 20261121)
try:
    if direction == "up":
        # Bytes that differ everywhere, so that a part in the place of another is seen.
        with open(local, "wb") as file:
            for _ in range(size >> 23):
                file.write(random.randbytes(8 << 20))
        right = digest(local)
    before, began = on_wire(), time.time()
    subprocess.run(copy, check=True, stdout=subprocess.DEVNULL, env=environment)
    clean, seconds = on_wire() - before, time.time() - began
    if direction == "down":
        right = digest(target)
        cat = f"{flatout} cat s3://demo/object --endpoint-url {endpoint} --no-sign-request --quiet | sha256sum"
        assert subprocess.run(cat, shell=True, capture_output=True, text=True).stdout.split()[0] == right
    assert digest(target) == right, "WRONG BYTES"
    print(f"uncut: {seconds:.2f} s, {clean / size:.4f} of its size on the wire", flush=True)
    twice = []
    while len(twice) < 20:
        clear()
        moment = random.uniform(0.05, seconds - 0.1)
        before = on_wire()
        child = subprocess.Popen(copy, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        time.sleep(moment)
        if child.poll() is not None:
            # The copy ended before the kill: not counted, and the next kill comes earlier.
            assert child.returncode == 0, child.returncode
            seconds = moment
            continue
        child.kill()
        child.wait()
        if direction == "up" and os.path.exists(stored):
            assert digest(stored) == right, "an object that is not whole was visible"
        first, began = on_wire() - before, time.time()
        again = subprocess.run(copy, capture_output=True, text=True, env=environment)
        took, both = time.time() - began, on_wire() - before
        assert again.returncode == 0, again.stderr
        events = [json.loads(line) for line in again.stdout.splitlines()]
        event = next(event for event in events if event["event"] == "object")
        assert digest(target) == right, "WRONG BYTES"
        assert os.listdir(beside) == ["object"] and not left(), (os.listdir(beside), left())
        twice.append(both / clean - 1)
        print(f"{len(twice):2}: killed after {moment:.2f} s with {first / clean:.3f} sent; resumed {event['resumed'] / 2**20:.0f} MiB, moved "
              f"{event['fetched'] / 2**20:.0f} MiB in {took:.2f} s; twice {100 * twice[-1]:.2f} %; {event['verified']}", flush=True)
    print(f"twice: median {100 * sorted(twice)[10]:.2f} %, at most {100 * max(twice):.2f} %")
finally:
    serve.terminate()
    serve.wait()
    shutil.rmtree(folder)
