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
        "kernel": platform.release(),
    }
    identity = hashlib.sha256("\n".join(map(str, same.values())).encode()).hexdigest()[:8]
    load = round(os.getloadavg()[0], 2)
    return {**same, "os": system(), "virtual": "hypervisor" in cpu_line("flags").split(), "load_before": load, "id": identity}


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
