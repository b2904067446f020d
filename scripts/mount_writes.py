#!/usr/bin/env python3
"""Writes through mounts, side by side: flatout, and the peers that are installed (rclone, mountpoint).

    scripts/mount_writes.py FLATOUT [--mib 4096] [--files 20000] [--rounds 3] [--peer NAME=PROGRAM]... [--only CASE]...
        with NAME rclone, mountpoint or supervised

The origin is `flatout serve --sink`, which forgets what it takes: it measures the writers. Each round mounts anew,
runs the cases one after another for one tool, then for the next. Prints a line for each run, and the medians: GiB a
second (files a second), CPU seconds of the mount per GiB (per 1,000 files), its peak resident MiB.

Cases: direct and buffered (one writer, 1 MiB writes, fsync), four (four writers, four files), small (64 KiB from 16
threads), torch (torch.save of a tensor), rsync (`rsync -a` of files of 16 KiB), cp (`flatout cp` of as many bytes, from a
file in memory). A tool that cannot do a case says so, and has no line. The tool `supervised` is flatout's
`mount --supervise`; the CPU time is that of the process that serves.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

MIB = 1 << 20
PORT = 9377
URL = f"http://127.0.0.1:{PORT}"
# That of Debian 13, which has torch (scripts/deps.sh).
WITH_TORCH = Path(os.environ.get("FLATOUT_CACHE") or Path.home() / ".cache/flatout") / "package-torch/bin/python"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("flatout")
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="append", default=[], help="rclone=PROGRAM, mountpoint=PROGRAM, supervised=FLATOUT")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--memory", default="512MiB")
    options = parser.parse_args()
    peers = {"flatout": options.flatout, **dict(peer.split("=", 1) for peer in options.peer)}
    cases = options.only or ["direct", "buffered", "four", "small", "torch", "rsync", "cp"]
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    try:
        for number in range(options.rounds):
            for tool, program in peers.items():
                for case in cases:
                    if case == "cp" and tool != "flatout":
                        continue
                    run = once(options, folder, tool, program, case)
                    if run is None:
                        continue
                    found.setdefault((case, tool), []).append(run)
                    print(f"round {number + 1} {case:9} {tool:10} {run[0]:9.2f} {run[1]:7.3f} {run[2]:7.0f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\nmedian    case tool        GiB/s|files/s   CPU s/GiB|1000 files   peak MiB")
    for (case, tool), runs in sorted(found.items()):
        columns = [statistics.median(column) for column in zip(*runs)]
        print(f"{case:9} {tool:10} {columns[0]:9.2f} {columns[1]:7.3f} {columns[2]:7.0f}")


def once(options, folder: Path, tool: str, program: str, case: str):
    # A rename copies, and a sink has nothing to copy.
    sink = [] if case == "rsync" else ["--sink"]
    serve = subprocess.Popen(
        [options.flatout, "serve", "--memory", *sink, "--no-auth", "--listen", f"127.0.0.1:{PORT}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    serve.stdout.readline()
    subprocess.run(
        [options.flatout, "mb", "s3://bucket", "--endpoint-url", URL, "--no-sign-request"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    at = folder / "m"
    at.mkdir(exist_ok=True)
    mounts = None
    try:
        if case == "cp":
            return copy(options, folder)
        # rclone cannot do with a bundle of certificates beside its own transport.
        environment = {
            **{name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"},
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        mounts = subprocess.Popen(command(tool, program, at, options, case), env=environment, stdout=subprocess.DEVNULL, stderr=sys.stderr)
        wait_until_mounted(at, mounts)
        return measured(options, at, serving(tool, mounts.pid), case, folder)
    finally:
        subprocess.run(["umount", at], stderr=subprocess.DEVNULL)
        if mounts:
            try:
                mounts.wait(20)
            except subprocess.TimeoutExpired:
                mounts.kill()
            subprocess.run(["umount", "-l", at], stderr=subprocess.DEVNULL)
        serve.terminate()
        serve.wait()


def serving(tool: str, pid: int) -> int:
    if tool != "supervised":
        return pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return int(children.read_text().split()[0])


def command(tool: str, program: str, at: Path, options, case: str) -> list[str]:
    if tool in ("flatout", "supervised"):
        more = ["--supervise"] if tool == "supervised" else []
        # Modes and times are no part of objects, for nobody here.
        more += ["--attributes", "ignore"] if case == "rsync" else []
        line = ["mount", "s3://bucket", str(at), "--foreground", "--endpoint-url", URL, "--no-sign-request"]
        return [program, *line, "--memory", options.memory, "--quiet", *more]
    if tool == "rclone":
        remote = f":s3,provider=Other,env_auth=true,endpoint='{URL}',force_path_style=true:bucket"
        return [program, "mount", remote, str(at), "--vfs-cache-mode", "off", "--transfers", "16"]
    if tool == "mountpoint":
        return [program, "bucket", str(at), "--foreground", "--endpoint-url", URL, "--force-path-style", "--allow-delete", "--allow-overwrite"]
    raise SystemExit(f"{tool} is no mount that this knows")


def wait_until_mounted(at: Path, mounts):
    for _ in range(600):
        if os.path.ismount(at):
            return
        if mounts.poll() is not None:
            raise SystemExit(f"{mounts.args[0]} ended with {mounts.returncode}")
        time.sleep(0.05)
    raise SystemExit(f"{mounts.args[0]} mounted nothing")


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measured(options, at: Path, pid: int, case: str, folder: Path):
    before, started = cpu(pid), time.perf_counter()
    try:
        if case == "small":
            small(at, options.files)
            units = options.files / 1000
        elif case == "rsync":
            source = folder / "tree"
            tree(source, options.files // 4)
            before, started = cpu(pid), time.perf_counter()
            subprocess.run(["rsync", "-a", f"{source}/", at], check=True, stderr=subprocess.DEVNULL)
            units = options.files // 4 / 1000
        elif case == "torch":
            # Without the time that its import takes.
            save = "import sys, time, torch; t = torch.zeros(int(sys.argv[2]) << 18); b = time.perf_counter(); torch.save(t, sys.argv[1]); print(time.perf_counter() - b)"
            saved = subprocess.run([WITH_TORCH, "-c", save, at / "t.pt", str(options.mib // 2)], check=True, stdout=subprocess.PIPE, text=True)
            units = options.mib / 2048
            return units / float(saved.stdout), (cpu(pid) - before) / units, peak_mib(pid)
        elif case == "four":
            each = options.mib // 4
            writers = [subprocess.Popen(dd(at / f"f{number}", each, True)) for number in range(4)]
            if any(writer.wait() for writer in writers):
                raise OSError("a writer failed")
            units = options.mib / 1024
        else:
            subprocess.run(dd(at / "f", options.mib, case == "direct"), check=True)
            units = options.mib / 1024
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{case}: {error}")
        return None
    seconds = time.perf_counter() - started
    rate = 1000 * units / seconds if case in ("small", "rsync") else units / seconds
    return rate, (cpu(pid) - before) / units, peak_mib(pid)


def tree(at: Path, files: int):
    for number in range(0 if at.exists() else files):
        folder = at / str(number % 50)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_bytes(os.urandom(16 << 10))


def dd(path: Path, mib: int, direct: bool) -> list[str]:
    flags = ["oflag=direct"] if direct else []
    return ["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={mib}", "conv=fsync", "status=none", *flags]


def small(at: Path, files: int):
    content, numbers, wrong = os.urandom(64 << 10), iter(range(files)), []
    lock = threading.Lock()

    def some():
        while not wrong:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                fd = os.open(at / f"{number % 100}/{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                os.write(fd, content)
                os.close(fd)
            except OSError as error:
                wrong.append(error)

    for number in range(100):
        (at / str(number)).mkdir()
    threads = [threading.Thread(target=some) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


def copy(options, folder: Path):
    source = folder / "source"
    if not source.exists():
        subprocess.run(["dd", "if=/dev/zero", f"of={source}", "bs=1M", f"count={options.mib}", "status=none"], check=True)
    started = time.perf_counter()
    before = os.times()
    done = subprocess.Popen([options.flatout, "cp", source, "s3://bucket/f", "--endpoint-url", URL, "--no-sign-request", "--quiet"])
    _, status, usage = os.wait4(done.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit("flatout cp failed")
    del before
    gib = options.mib / 1024
    return gib / seconds, (usage.ru_utime + usage.ru_stime) / gib, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
