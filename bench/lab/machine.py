"""What was measured on, and with what."""

import hashlib
import os
import platform
import subprocess
from pathlib import Path

from sizes import GIB


def describe() -> dict:
    """The machine, with an id that is the same only where figures may be compared."""
    same = {
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(memory_bytes() / GIB, 1),
    }
    identity = hashlib.sha256("\n".join([*map(str, same.values()), own_number()]).encode()).hexdigest()[:8]
    seen = {"kernel": platform.release(), "os": system(), "virtual": "hypervisor" in cpu_line("flags").split()}
    return {**same, **seen, "id": identity}


def load() -> float:
    return round(os.getloadavg()[0], 2)


def own_number(file: Path = Path("/etc/machine-id")) -> str:
    """What tells two machines of one type apart; it goes into a hash, and nowhere else."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def busy_seconds() -> float:
    """CPU seconds of all cores that anybody used since the machine started, or that its host took away."""
    with open("/proc/stat", "rb", 0) as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def cpu_model() -> str:
    """ARM says no name, only numbers."""
    return cpu_line("model name") or cpu_line("CPU part") or platform.machine()


def cpu_line(name: str) -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def memory_bytes(field: str = "MemTotal") -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return 0


def system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def commit(root: Path) -> tuple[str | None, bool]:
    """Of the sources, and whether they differ from it; None outside a repository."""
    head = git(root, "rev-parse", "--short=7", "HEAD")
    return head or None, bool(head and git(root, "status", "--porcelain", "--untracked-files=no"))


def git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
