"""kill -9 at 20 random moments of a 4 GiB download (docs/numbers.md, Resume), in a network of its own so that the
loopback's counter is ours:
    unshare -n sh -c 'ip link set lo up && python3 scripts/resume_kill.py FLATOUT FOLDER [SEED]'
FOLDER is made, and removed. Fails on a wrong byte or anything left beside the file.
"""
import json
import os
import random
import subprocess
import sys
import time

flatout, folder = sys.argv[1:3]
size, rate = 4 << 30, "600MiB/s"
endpoint = "http://127.0.0.1:19421"
# Fails where there is one: what is in it is not ours to remove.
os.mkdir(folder)
origin = [flatout, "serve", "--no-auth", "--listen", "127.0.0.1:19421", "--synthetic", "demo/object=4GiB", "--total", rate]
serve = subprocess.Popen(origin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(1)
target = os.path.join(folder, "object")
copy = [flatout, "cp", "s3://demo/object", target, "--endpoint-url", endpoint, "--no-sign-request", "--json"]

def on_wire():
    with open("/proc/net/dev") as lines:
        return int(next(line for line in lines if line.strip().startswith("lo:")).split(":")[1].split()[0])

def digest():
    return subprocess.run(["sha256sum", target], capture_output=True, text=True, check=True).stdout.split()[0]

def clear():
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))

random.seed(int(sys.argv[3]) if len(sys.argv) > 3 else 20261121)
try:
    clear()
    before, began = on_wire(), time.time()
    subprocess.run(copy, check=True, stdout=subprocess.DEVNULL)
    clean, seconds = on_wire() - before, time.time() - began
    right = digest()
    cat = f"{flatout} cat s3://demo/object --endpoint-url {endpoint} --no-sign-request --quiet | sha256sum"
    assert subprocess.run(cat, shell=True, capture_output=True, text=True).stdout.split()[0] == right
    print(f"uncut: {seconds:.2f} s, {clean / size:.4f} of its size on the wire", flush=True)
    twice = []
    for number in range(1, 21):
        clear()
        moment = random.uniform(0.05, seconds - 0.1)
        before = on_wire()
        child = subprocess.Popen(copy, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moment)
        child.kill()
        child.wait()
        first, began = on_wire() - before, time.time()
        again = subprocess.run(copy, capture_output=True, text=True)
        took, both = time.time() - began, on_wire() - before
        assert again.returncode == 0, again.stderr
        events = [json.loads(line) for line in again.stdout.splitlines()]
        event = next(event for event in events if event["event"] == "object")
        assert digest() == right, "WRONG BYTES"
        assert os.listdir(folder) == ["object"], os.listdir(folder)
        twice.append(both / clean - 1)
        print(f"{number:2}: killed after {moment:.2f} s with {first / clean:.3f} sent; resumed {event['resumed'] / 2**20:.0f} MiB, fetched "
              f"{event['fetched'] / 2**20:.0f} MiB in {took:.2f} s; twice {100 * twice[-1]:.2f} %; {event['verified']}", flush=True)
    print(f"twice: median {100 * sorted(twice)[10]:.2f} %, at most {100 * max(twice):.2f} %")
finally:
    serve.terminate()
    serve.wait()
    clear()
    os.rmdir(folder)
