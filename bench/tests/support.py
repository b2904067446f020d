"""What the tests share: the way to the lab's modules, clients made of a few lines, and looking for what was left behind."""

import os
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH / "lab"))

from process import Client, Limits, RunFailed, Surroundings, run  # noqa: E402
from sampler import Loopback  # noqa: E402
from sizes import MIB  # noqa: E402
from tree import Tree, become_subreaper  # noqa: E402

PYTHON = "/usr/bin/python3"
# What empties a pipe here: the tests of the lab need no flatout.
DRAIN = ["/bin/sh", "-c", "exec cat >/dev/null"]


class WithFolder(unittest.TestCase):
    """A folder of the test's own, which its processes are known by."""

    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="lab-test.")
        self.addCleanup(made.cleanup)
        self.folder = Path(made.name)


class WithClients(WithFolder):
    """Runs clients that are written in a few lines of Python; none of them may be left when the test ends."""

    def setUp(self):
        super().setUp()
        become_subreaper()
        loopback = Loopback()
        self.addCleanup(loopback.close)
        self.loopback = loopback

    def run_client(self, code: str, talks=False, stdout="keep", seconds=10.0, memory_mib=1024, stdin=None):
        """What one run measured. Raises RunFailed."""
        try:
            return run(*self.client(code, talks, stdout, seconds, memory_mib, stdin))
        finally:
            self.assertEqual(processes_of(self.folder), [], "processes are left")
            self.assertEqual(Tree(set()).pids(), [], "children are left")

    def client(self, code: str, talks=False, stdout="keep", seconds=10.0, memory_mib=1024, stdin=None) -> tuple[Client, Surroundings]:
        program = self.folder / "client.py"
        program.write_text("import os, signal, sys, time\nsay = lambda line: print(line, flush=True)\n" + code)
        client = Client([PYTHON, "-S", str(program)], {"FOLDER": str(self.folder)}, str(self.folder), talks, stdout, stdin)
        return client, Surroundings(Limits(seconds, memory_mib * MIB), [], self.loopback, DRAIN)

    def reason(self, code: str, **more) -> str:
        """Why the run failed, which it must."""
        with self.assertRaises(RunFailed) as caught:
            self.run_client(code, **more)
        return str(caught.exception)


def processes_of(folder: Path) -> list[str]:
    """The command lines that name the folder."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(folder).encode() in line:
                found.append(line.replace(b"\0", b" ").decode())
    return found


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))
