#!/usr/bin/env python3
"""What Kubernetes volumes cost: the time to the first byte, memory, readers beside `flatout mount`, takeovers;
and, in a pod's mount namespace, fio as in the articles about ossfs 2.0 and a Qwen2.5 that transformers loads.

    python3 scripts/volumes.py [--program target/release/flatout] [--only publish,memory,readers,kills,fio,qwen] [--rounds 7]

Needs root, /dev/fuse and `cargo build -p flatout-csi --example kubelet`; fio; for qwen a Python with torch and transformers
(--torch, by default that of `make test`). The engine is a user without rights.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENGINE_USER = 65532
TICKS = os.sysconf("SC_CLK_TCK")


class Node:
    """The driver of a node, and an origin of made-up bytes."""

    def __init__(self, program, kubelet, *options):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="flatout-volumes-", dir=pathlib.Path(tempfile.gettempdir()).resolve()))
        self.folder.chmod(0o711)
        self.program, self.kubelet = self.folder / "flatout", kubelet
        shutil.copy(program, self.program)
        self.shared, self.socket = self.folder / "driver", self.folder / "csi.sock"
        self.processes = []
        self.origin = self.serve()
        self.start("node", [self.program, "csi", "node", "--node-name", "n", "--endpoint", f"unix://{self.socket}", "--folder", self.shared, *options])
        while not self.socket.exists():
            time.sleep(0.01)
        self.shared.chmod(0o711)
        self.engine = self.start("engine", [
            "setpriv", f"--reuid={ENGINE_USER}", f"--regid={ENGINE_USER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
            "--no-new-privs", self.program, "csi", "engine", "--folder", self.shared,
        ])
        while "is connected" not in self.log("node"):
            time.sleep(0.01)

    def serve(self):
        synthetic = ["bench/big=4GiB", "bench/small-%04d=128KiB*2000"]
        arguments = [self.program, "serve", "--listen", "127.0.0.1:0", "--no-auth"]
        for each in synthetic:
            arguments += ["--synthetic", each]
        self.start("serve", arguments)
        while "listening on" not in self.log("serve"):
            time.sleep(0.01)
        return self.log("serve").split("listening on ")[1].split()[0]

    def start(self, name, arguments):
        log = open(self.folder / f"{name}.log", "ab")
        process = subprocess.Popen([str(each) for each in arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def serving(self):
        """The process of the engine that serves."""
        pid = self.engine.pid
        return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def target(self, name):
        return self.folder / "pods" / name / "mount"

    def publish(self, volume, target, *attributes):
        arguments = [self.kubelet, self.socket, "publish", volume, target, "source=s3://bench", f"endpoint-url={self.origin}", "no-sign-request=true"]
        done = subprocess.run([str(each) for each in [*arguments, *attributes]], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"publish: {done.stderr}{self.log('node')}{self.log('engine')}")
        return float(done.stdout)

    def unpublish(self, volume, target):
        subprocess.run([self.kubelet, self.socket, "unpublish", volume, target], check=True, stdout=subprocess.DEVNULL)

    def end(self):
        if sys.exc_info()[0]:
            print(self.log("node")[-2000:], self.log("engine")[-2000:], file=sys.stderr)
        for process in reversed(self.processes):
            subprocess.run(["pkill", "-KILL", "-P", str(process.pid)])
            process.kill()
            process.wait()
        for line in reversed(pathlib.Path("/proc/self/mountinfo").read_text().splitlines()):
            if str(self.folder) in line.split()[4]:
                subprocess.run(["umount", "-l", line.split()[4]])
        shutil.rmtree(self.folder, ignore_errors=True)


def resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def publish(node, rounds):
    """From the call to the first byte of a file."""
    times = []
    for at in range(3 * rounds):
        target = node.target(f"pod-{at}")
        called = node.publish(f"pv-{at}", target)
        began = time.perf_counter()
        with open(target / "big", "rb", buffering=0) as file:
            file.read(1)
        times.append(called + (time.perf_counter() - began) * 1e3)
        node.unpublish(f"pv-{at}", target)
    print(f"publish to first byte: median {statistics.median(times):.1f} ms, most {max(times):.1f} ms of {len(times)} (asked: 200 ms)")


def memory(program, kubelet):
    """Fifty volumes on one engine, at rest and while each is read."""
    share = 32
    node = Node(program, kubelet, "--memory", f"{50 * share}MiB", "--volume-memory", f"{share}MiB")
    try:
        alone = resident_mib(node.serving())
        targets = [node.target(f"pod-{at}") for at in range(50)]
        for at, target in enumerate(targets):
            node.publish(f"pv-{at}", target)
        for target in targets:
            with open(target / "small-0001", "rb") as file:
                file.read()
        rest = resident_mib(node.serving())
        most = [0]
        stop = threading.Event()

        def watch():
            while not stop.wait(0.05):
                most[0] = max(most[0], resident_mib(node.serving()))

        def read(target):
            with open(target / "big", "rb", buffering=0) as file:
                for _ in range(96):
                    file.read(1 << 20)

        watcher = threading.Thread(target=watch)
        watcher.start()
        readers = [threading.Thread(target=read, args=(target,)) for target in targets]
        [reader.start() for reader in readers]
        [reader.join() for reader in readers]
        stop.set()
        watcher.join()
        bound = 50 * share + 50 * 2
        print(f"50 volumes: engine alone {alone:.0f} MiB, at rest {rest:.0f} MiB, most while all are read {most[0]:.0f} MiB (asked: {bound} MiB)")
    finally:
        node.end()


def readers(node, rounds):
    """One reader of 2 GiB, through a published volume and through a mount of the same program, in turns."""
    point = node.folder / "mount"
    point.mkdir()
    mount = node.start("mount", [
        node.program, "mount", "s3://bench", point, "--endpoint-url", node.origin, "--no-sign-request", "--foreground", "--allow-other", "--memory", "1GiB",
    ])
    while "is mounted on" not in node.log("mount"):
        time.sleep(0.01)
    target = node.target("reader")
    node.publish("pv-reader", target, "memory=1GiB")
    size = 2 << 30
    buffer = memoryview(bytearray(4 << 20))

    def read(folder, pid):
        with open("/proc/sys/vm/drop_caches", "w") as drop:
            drop.write("1")
        before, began = cpu_s(pid), time.perf_counter()
        with open(folder / "big", "rb", buffering=0) as file:
            left = size
            while left > 0:
                left -= file.readinto(buffer)
        seconds = time.perf_counter() - began
        return size / 2**30 / seconds, (cpu_s(pid) - before) / (size / 2**30)

    seen = {"mount": [], "volume": []}
    for at in range(rounds + 1):
        for name, folder, pid in [("mount", point, mount.pid), ("volume", target, node.serving())]:
            figures = read(folder, pid)
            if at > 0:
                seen[name].append(figures)
    speed = {name: statistics.median(each[0] for each in figures) for name, figures in seen.items()}
    cpu = {name: statistics.median(each[1] for each in figures) for name, figures in seen.items()}
    print(
        f"a reader: mount {speed['mount']:.2f} GiB/s at {cpu['mount']:.3f} CPU s/GiB, volume {speed['volume']:.2f} at {cpu['volume']:.3f}: "
        f"{speed['volume'] / speed['mount']:.3f} and {cpu['volume'] / cpu['mount']:.3f} (asked: within 1.02)"
    )
    node.unpublish("pv-reader", target)
    mount.send_signal(signal.SIGTERM)
    mount.wait()


def kills(node, count):
    """A reader without the page cache, whose engine is killed again and again."""
    target = node.target("killed")
    node.publish("pv-killed", target, "direct-bytes=1")
    stop, longest, failures = threading.Event(), [0.0], []

    def read():
        chance = random.Random(7)
        file = os.open(target / "big", os.O_RDONLY)
        while not stop.is_set():
            began = time.perf_counter()
            try:
                os.pread(file, 128 << 10, chance.randrange(0, 4 << 30, 128 << 10))
            except OSError as error:
                failures.append(error)
            longest[0] = max(longest[0], time.perf_counter() - began)

    reader = threading.Thread(target=read)
    reader.start()
    pauses = []
    for _ in range(count):
        # An engine that dies ten times at once is given up.
        time.sleep(1.1)
        before = node.log("node").count("goes on with it")
        longest[0] = 0.0
        os.kill(node.serving(), signal.SIGKILL)
        while node.log("node").count("goes on with it") == before:
            time.sleep(0.005)
        time.sleep(0.2)
        pauses.append(longest[0] * 1e3)
    stop.set()
    reader.join()
    print(f"{count} kills of the engine: the reader waited {statistics.median(pauses):.0f} ms (median), {max(pauses):.0f} ms (most), {len(failures)} errors (asked: 1 s)")
    node.unpublish("pv-killed", target)


# The single stream and the four of the articles, smaller: 100 GB do not fit here.
FIO = {
    "write 1": "--name=one --ioengine=libaio --rw=write --bs=1M --size=2G --numjobs=1 --direct=1 --group_reporting",
    "read 1": "--name=one --ioengine=libaio --rw=read --bs=1M --size=2G --numjobs=1 --direct=1 --group_reporting",
    "write 4": "--name=four --ioengine=libaio --direct=1 --iodepth=1 --numjobs=4 --nrfiles=1 --rw=write --bs=1M --size=512M --group_reporting --thread",
    "read 4": "--name=four --ioengine=libaio --direct=1 --iodepth=1 --numjobs=4 --nrfiles=1 --rw=read --bs=1M --size=512M --group_reporting --thread",
}
# As large as Qwen2.5-1.5B-Instruct, with weights by chance.
QWEN = """
import sys, time, torch, transformers
what, folder = sys.argv[1:]
torch.manual_seed(1)
if what == "save":
    config = transformers.Qwen2Config(
        hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
        vocab_size=151936, tie_word_embeddings=True, dtype="bfloat16")
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="512MB")
    print(0)
else:
    began = time.perf_counter()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    # Weights that are mapped come when they are touched.
    total = sum(tensor.float().sum().item() for tensor in model.parameters())
    print(time.perf_counter() - began)
print(sum(tensor.float().sum().item() for tensor in model.parameters()))
"""


def in_pod(command, **options):
    """As a container sees it: mounts of the node arrive, and none goes back."""
    return subprocess.run(["unshare", "--mount", "--propagation", "slave", *map(str, command)], capture_output=True, text=True, **options)


class Stored:
    """A bucket in memory, as a volume and as a mount of the same program."""

    def __init__(self, node):
        self.node = node
        node.start("stored", [node.program, "serve", "--listen", "127.0.0.1:0", "--no-auth", "--memory"])
        while "listening on" not in node.log("stored"):
            time.sleep(0.01)
        origin = node.log("stored").split("listening on ")[1].split()[0]
        subprocess.run(["curl", "--silent", "--show-error", "--fail", "--request", "PUT", f"{origin}/work"], check=True)
        point = node.folder / "stored"
        point.mkdir()
        self.origin = origin
        self.mount = node.start("stored-mount", [
            node.program, "mount", "s3://work", point, "--endpoint-url", origin, "--no-sign-request", "--foreground", "--allow-other", "--memory", "1GiB",
        ])
        while "is mounted on" not in node.log("stored-mount"):
            time.sleep(0.01)
        target = node.target("stored")
        arguments = [node.kubelet, node.socket, "publish", "pv-stored", target, "source=s3://work", f"endpoint-url={origin}", "no-sign-request=true", "memory=1GiB"]
        subprocess.run([str(each) for each in arguments], check=True, stdout=subprocess.DEVNULL)
        self.places = {"mount": (point, self.mount.pid), "volume": (target, node.serving())}

    def end(self):
        self.node.unpublish("pv-stored", self.places["volume"][0])
        self.mount.send_signal(signal.SIGTERM)
        self.mount.wait()


def drop_caches():
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("1")


def said(done):
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


def fio(stored, rounds):
    seen = {(case, name): [] for case in FIO for name in stored.places}
    for at in range(rounds):
        for case, arguments in FIO.items():
            # In alternating order: the first of a round pays for the first touch of memory.
            for name, (folder, pid) in sorted(stored.places.items(), reverse=at % 2):
                place = folder / name
                place.mkdir(exist_ok=True)
                if case.startswith("write"):
                    # fio opens what is there and writes over it, which a bucket cannot.
                    [file.unlink() for file in place.iterdir()]
                drop_caches()
                before = cpu_s(pid)
                done = in_pod(["fio", *arguments.split(), f"--directory={place}", "--output-format=json"])
                job = json.loads(said(done))["jobs"][0]
                figures = job["write" if case.startswith("write") else "read"]
                speed, gib = figures["bw_bytes"] / 2**30, figures["io_bytes"] / 2**30
                seen[case, name].append((speed, (cpu_s(pid) - before) / gib))
    for case in FIO:
        speed, cpu = ({name: statistics.median(each[at] for each in seen[case, name]) for name in stored.places} for at in (0, 1))
        print(
            f"fio {case}: mount {speed['mount']:.2f} GiB/s at {cpu['mount']:.3f} CPU s/GiB, volume {speed['volume']:.2f} at {cpu['volume']:.3f}: "
            f"{speed['volume'] / speed['mount']:.2f} and {cpu['volume'] / cpu['mount']:.2f}"
        )


def qwen(stored, rounds, python):
    local, node = stored.node.folder / "qwen", stored.node
    run = lambda what, folder: said(in_pod([python, "-c", QWEN, what, folder], env={**os.environ, "HF_HUB_OFFLINE": "1"})).split()
    wanted = run("save", local)[1]
    size = sum(path.stat().st_size for path in local.iterdir()) / 2**30
    print(f"qwen: {size:.2f} GiB in {len(list(local.glob('*.safetensors')))} files")
    copy = [node.program, "cp", "--recursive", f"{local}/", "s3://work/qwen/", "--endpoint-url", stored.origin, "--no-sign-request"]
    subprocess.run([str(each) for each in copy], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(local)
    seen = {name: [] for name in stored.places}
    for at in range(rounds):
        for name, (folder, _) in sorted(stored.places.items(), reverse=at % 2):
            drop_caches()
            seconds, total = run("load", folder / "qwen")
            if total != wanted:
                sys.exit(f"qwen: {name}: other weights: {total}, {wanted} were saved")
            seen[name].append(float(seconds))
    shown = {name: statistics.median(times) for name, times in seen.items()}
    print(f"qwen: loaded whole by transformers: mount {shown['mount']:.2f} s, volume {shown['volume']:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "target/release/flatout")
    parser.add_argument("--kubelet", default=ROOT / "target/debug/examples/kubelet")
    parser.add_argument("--only", default="publish,readers,kills,memory")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--torch", default=pathlib.Path.home() / ".cache/flatout/package-torch/bin/python")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if set(wanted) - {"memory"}:
        node = Node(options.program, options.kubelet)
        try:
            if "publish" in wanted:
                publish(node, options.rounds)
            if "readers" in wanted:
                readers(node, options.rounds)
            if "kills" in wanted:
                kills(node, options.kills)
            if set(wanted) & {"fio", "qwen"}:
                stored = Stored(node)
                if "fio" in wanted:
                    fio(stored, options.rounds)
                if "qwen" in wanted:
                    qwen(stored, options.rounds, options.torch)
                stored.end()
        finally:
            node.end()
    if "memory" in wanted:
        memory(options.program, options.kubelet)


if __name__ == "__main__":
    main()
