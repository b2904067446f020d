"""How peers are installed, with stand-ins for go, cargo, dpkg and apt-get: no network, no compiler."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from unittest import mock

LAB = Path(__file__).resolve().parents[1] / "lab"
sys.path.insert(0, str(LAB))

import install as installer  # noqa: E402
from install import InstallError, install, missing  # noqa: E402

# Answers as Go does; makes the program where it is told to, unless the test has it refuse.
GO = """
echo "go $*" >>"$CALLS"
case "$1" in
env) echo "${FAKE_GO_VERSION:-go1.26.8}" ;;
install)
    if [ -n "${FAKE_REFUSED:-}" ]; then echo "go: the proxy said 403 Forbidden" >&2; exit 1; fi
    package=${3%@*}
    printf '#!/bin/sh\\n' >"$GOBIN/${package##*/}" && chmod +x "$GOBIN/${package##*/}" ;;
build)
    if [ -n "${FAKE_BROKEN:-}" ]; then echo "main.go:7: undefined: nothing" >&2; exit 1; fi
    while [ "$1" != -o ]; do shift; done
    case "$2" in
    */) program=$2${3##*/} ;;
    *) program=$2 ;;
    esac
    if [ -n "${FAKE_SLOW:-}" ]; then : >"$program.half"; sleep 60; fi
    printf '#!/bin/sh\\n' >"$program" && chmod +x "$program" ;;
esac
"""

CARGO = """
echo "cargo $*" >>"$CALLS"
while [ "$1" != --target-dir ]; do shift; done
mkdir -p "$2/release" && printf '#!/bin/sh\\n' >"$2/release/peer" && chmod +x "$2/release/peer"
echo '{"reason":"compiler-artifact","target":{"name":"dependency"},"executable":null}'
echo "{\\"reason\\":\\"compiler-artifact\\",\\"target\\":{\\"name\\":\\"peer\\"},\\"executable\\":\\"$2/release/peer\\"}"
"""

# Knows the packages of $FAKE_PACKAGES.
DPKG_QUERY = """
for package in $FAKE_PACKAGES; do
    if [ "$package" = "$3" ]; then
        case "$2" in *Version*) echo 1.36.0-1 ;; *) echo installed ;; esac
        exit 0
    fi
done
exit 1
"""


class Sandbox(unittest.TestCase):
    """A peer's folder, a cache, and a PATH with the stand-ins first."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.cache = self.root / "cache"
        self.peer = self.root / "peers/peer"
        self.peer.mkdir(parents=True)
        self.tools = self.root / "tools"
        self.tools.mkdir()
        for name, script in {"go": GO, "cargo": CARGO, "dpkg-query": DPKG_QUERY}.items():
            self.program(self.tools / name, script)
        self.calls = self.root / "calls"
        self.calls.touch()
        self.set(PATH=f"{self.tools}:/usr/bin:/bin", CALLS=str(self.calls), FAKE_PACKAGES="", CI="")
        silent = mock.patch.object(installer, "say", self.said)
        silent.start()
        self.addCleanup(silent.stop)
        self.lines = []

    def said(self, line):
        self.lines.append(line)

    def set(self, **env):
        patch = mock.patch.dict(os.environ, env)
        patch.start()
        self.addCleanup(patch.stop)

    def program(self, path, script):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def write(self, name, text):
        path = self.peer / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def as_user(self):
        patch = mock.patch.object(os, "geteuid", lambda: 1000)
        patch.start()
        self.addCleanup(patch.stop)

    def install(self, table):
        return install(self.peer, table, self.cache)

    def missing(self, table):
        return missing(self.peer, table, self.cache)

    def error(self, table):
        with self.assertRaises(InstallError) as caught:
            self.install(table)
        return str(caught.exception)

    def called(self, what):
        return [line for line in self.calls.read_text().splitlines() if what in line]


class Tables(Sandbox):
    def check_error(self, table, *words):
        said = self.error(table)
        for word in ("peers/peer/peer.toml: [install]", *words):
            self.assertIn(word, said)

    def test_an_unknown_way_is_told_with_the_nearest_name(self):
        self.check_error({"go-biuld": "."}, "no key go-biuld; did you mean go-build?")
        self.check_error({"carg": "."}, "did you mean cargo?")
        self.check_error({"zzz": "."}, "no key zzz; the ways are go, go-build, cargo, pip, module, apt, flatout")

    def test_exactly_one_way(self):
        self.check_error({"program": "x"}, "write exactly one of", "there is none")
        self.check_error({"pip": "requirements.txt", "cargo": "."}, "there is pip and cargo")

    def test_values_are_of_their_type(self):
        self.check_error({"cargo": 1}, "cargo = 1 is of the wrong type")
        self.check_error({"apt": "aria2"}, "apt = 'aria2' is of the wrong type")
        self.check_error({"apt": [1]}, "apt is a list of package names")
        self.check_error({"flatout": False}, "flatout = False is of the wrong type")
        self.check_error({"cargo": ".", "minutes": "six"}, "minutes = 'six' is of the wrong type")

    def test_a_module_is_pinned(self):
        for unpinned in ("example.test/tool", "example.test/tool@latest"):
            self.check_error({"go": unpinned}, "go is MODULE@vVERSION")


class Names(Sandbox):
    """The folder of a peer is named after what defines it."""

    def folder(self, table):
        return installer.read_recipe(self.peer, table, self.cache).place.name

    def check_named_after(self, table, name):
        before = self.folder(table)
        self.write(name, "changed")
        self.assertNotEqual(self.folder(table), before, f"{name} defines the peer")

    def check_not_named_after(self, table, name):
        before = self.folder(table)
        self.write(name, "changed")
        self.assertEqual(self.folder(table), before, f"{name} does not define what is installed")

    def test_it_starts_with_the_name(self):
        self.assertRegex(self.folder({"go": "example.test/tool@v1.0.0"}), "^peer-[0-9a-f]{12}$")

    def test_the_table_but_not_the_estimate_of_time(self):
        one = self.folder({"go": "example.test/tool@v1.0.0"})
        self.assertNotEqual(one, self.folder({"go": "example.test/tool@v1.0.1"}))
        self.assertEqual(one, self.folder({"go": "example.test/tool@v1.0.0", "minutes": 9}))

    def test_sources_of_go(self):
        for name in ("main.go", "inner/part.go", "go.mod", "go.sum"):
            self.check_named_after({"go-build": "."}, name)
        self.check_not_named_after({"go-build": "."}, "peer.toml")

    def test_sources_of_rust(self):
        for name in ("Cargo.toml", "Cargo.lock", "src/main.rs", "build.rs"):
            self.check_named_after({"cargo": "."}, name)
        self.check_not_named_after({"cargo": "."}, "target/release/peer")

    def test_requirements_but_not_the_program_that_runs_from_the_peers_folder(self):
        table = {"pip": "requirements.txt", "program": "peer.py"}
        self.write("requirements.txt", "boto3==1.44.0")
        self.check_named_after(table, "requirements.txt")
        self.check_not_named_after(table, "peer.py")

    def test_what_moves_between_files_is_seen(self):
        self.write("a.go", "xy")
        self.write("b.go", "z")
        before = self.folder({"go-build": "."})
        self.write("a.go", "x")
        self.write("b.go", "yz")
        self.assertNotEqual(self.folder({"go-build": "."}), before)


class Go(Sandbox):
    MODULE = {"go": "example.test/tool@v1.2.3", "program": "tool"}

    def test_a_module_is_installed_once(self):
        first = self.install(self.MODULE)
        self.assertEqual(first, self.install(self.MODULE))
        self.assertEqual(first.argv, [str(first.folder / "bin/tool")])
        self.assertTrue(os.access(first.argv[0], os.X_OK))
        self.assertEqual(self.called("go install"), ["go install -trimpath example.test/tool@v1.2.3"])

    def test_the_package_may_lie_deeper_than_the_module(self):
        self.install({**self.MODULE, "package": "example.test/tool/cmd/tool"})
        self.assertEqual(self.called("go install"), ["go install -trimpath example.test/tool/cmd/tool@v1.2.3"])

    def test_a_refused_module_is_built_in_an_empty_one(self):
        self.set(FAKE_REFUSED="yes")
        made = self.install(self.MODULE)
        self.assertTrue(os.access(made.argv[0], os.X_OK))
        self.assertTrue(self.called("-require=example.test/tool@v1.2.3"))
        self.assertTrue(self.called("-mod=mod"))

    def test_what_fails_both_ways_ends_with_the_tools_own_words(self):
        self.set(FAKE_REFUSED="yes", FAKE_BROKEN="yes")
        said = self.error(self.MODULE)
        self.assertIn("peer: go build -C … failed, exit status 1", said)
        self.assertTrue(said.endswith("main.go:7: undefined: nothing"), said)
        self.assertIn("403 Forbidden", (self.cache / "peer.log").read_text(), "the log has the first reason too")

    def test_a_module_that_the_peers_own_go_mod_pins(self):
        self.install({"go-build": "example.test/tool", "program": "tool"})
        self.assertTrue(self.called(f"go build -C {self.peer} -mod=readonly")[0].endswith("bin/tool example.test/tool"))

    def test_a_program_that_the_build_did_not_make(self):
        said = self.error({**self.MODULE, "program": "other"})
        self.assertEqual(said, "peer: the build made no program other, but tool")
        self.assertIsNotNone(self.missing({**self.MODULE, "program": "other"}))

    def test_an_old_go_is_told_before_it_fails(self):
        self.set(FAKE_GO_VERSION="go1.19.8")
        reason = self.missing(self.MODULE)
        self.assertIn("built with Go 1.25 or newer, here is go1.19.8: install it from", reason)
        self.assertEqual(self.error(self.MODULE), reason)

    def test_no_go(self):
        self.set(PATH=str(self.tools))
        (self.tools / "go").unlink()
        self.assertIn("no go in PATH", self.missing(self.MODULE))


class Rust(Sandbox):
    def test_the_program_is_copied_from_where_cargo_says_it_is(self):
        made = self.install({"cargo": "."})
        self.assertEqual(made.argv, [str(made.folder / "bin/peer")])
        self.assertTrue(os.access(made.argv[0], os.X_OK))
        call = self.called("cargo build")[0]
        for option in ("--release", "--locked", f"--target-dir {self.cache}/build/peer"):
            self.assertIn(option, call)

    def test_a_crate_without_the_program(self):
        self.assertIn("has no program other", self.error({"cargo": ".", "program": "other"}))

    def test_packages_that_the_build_needs(self):
        self.as_user()
        table = {"cargo": ".", "apt": ["cmake", "libclang-dev"]}
        self.set(FAKE_PACKAGES="cmake")
        reason = "peer needs Debian's libclang-dev: sudo apt-get install libclang-dev"
        self.assertEqual(self.missing(table), reason)
        self.assertEqual(self.error(table), reason)
        self.set(FAKE_PACKAGES="cmake libclang-dev")
        self.install(table)
        self.set(FAKE_PACKAGES="")
        self.assertIsNone(self.missing(table), "what is built needs them no more")

    def test_no_cargo(self):
        self.set(PATH=str(self.tools))
        (self.tools / "cargo").unlink()
        self.assertIn("no cargo is in PATH", self.missing({"cargo": "."}))


class Debian(Sandbox):
    TABLE = {"apt": ["aria2"], "program": "aria2c"}

    def setUp(self):
        super().setUp()
        self.debian = self.root / "debian"
        self.debian.mkdir()
        patch = mock.patch.object(installer, "DEBIAN_PATH", str(self.debian))
        patch.start()
        self.addCleanup(patch.stop)
        # Another program of that name, in the caller's PATH.
        self.program(self.tools / "aria2c", "")

    def test_debians_program_and_the_version_that_dpkg_says(self):
        self.set(FAKE_PACKAGES="aria2")
        self.program(self.debian / "aria2c", "")
        made = self.install(self.TABLE)
        self.assertEqual((made.argv, made.version), ([str(self.debian / "aria2c")], "1.36.0-1"))
        self.assertIsNone(self.missing(self.TABLE))

    def test_a_user_is_told_what_to_install(self):
        self.as_user()
        reason = "peer needs Debian's aria2: sudo apt-get install aria2"
        self.assertEqual(self.missing(self.TABLE), reason)
        self.assertEqual(self.error(self.TABLE), reason)

    def test_root_installs_it(self):
        self.program(self.tools / "apt-get", f'echo "apt-get $*" >>"$CALLS"; cp {self.tools}/aria2c {self.debian}')
        with mock.patch.object(os, "geteuid", lambda: 0):
            self.install(self.TABLE)
        calls = ["apt-get -q update", "apt-get -q install -y --no-install-recommends aria2"]
        self.assertEqual(self.called("apt-get"), calls)
        self.assertIn("peer: apt-get install aria2", self.lines)

    def test_a_package_without_the_program(self):
        self.set(FAKE_PACKAGES="aria2")
        self.assertIn("no program aria2c", self.error(self.TABLE))


class Python(Sandbox):
    def setUp(self):
        super().setUp()
        # Makes an environment whose Python says yes to everything, and notes it.
        self.program(self.tools / "python", 'echo "python $*" >>"$CALLS"; exit ${FAKE_BROKEN:-0}')
        self.program(
            self.tools / "python3",
            f'echo "python3 $*" >>"$CALLS"; [ "$2" = venv ] && cp {self.tools}/python "$3/bin/python" && cp {self.tools}/python "$3/bin/tool"'
            ' && mkdir -p "$3/lib/python3.11/site-packages"; exit 0',
        )
        patch = mock.patch.object(installer, "PYTHON", str(self.tools / "python3"))
        patch.start()
        self.addCleanup(patch.stop)
        self.write("requirements.txt", "tool==1.0")

    def test_a_program_of_the_peers_folder_is_run_by_the_environment(self):
        made = self.install({"pip": "requirements.txt", "program": "peer.py"})
        self.assertEqual(made.argv, [str(made.folder / "bin/python"), str(self.peer / "peer.py")])
        self.assertTrue(self.called("install -q --no-deps -r"))
        self.assertTrue(self.called("pip --disable-pip-version-check check"))

    def test_a_script_of_the_environment_with_or_without_its_folder(self):
        for program in ("tool", "bin/tool"):
            made = self.install({"pip": "requirements.txt", "program": program})
            self.assertEqual(made.argv, [str(made.folder / "bin/tool")])

    def test_debians_packages_are_seen_and_need_not_fit(self):
        self.program(self.tools / "python", 'echo "python $*" >>"$CALLS"; [ "$4" != check ]')
        self.set(FAKE_PACKAGES="python3-torch")
        table = {"pip": "requirements.txt", "program": "tool", "system": True, "apt": ["python3-torch"]}
        self.install(table)
        self.assertTrue(self.called("python3 -m venv"))
        self.assertTrue(self.called("--system-site-packages")[0].startswith("python3 -m venv"))
        self.assertFalse(self.called("version-check check"))
        self.assertIn("pip", self.error({"pip": "requirements.txt", "program": "tool"}))

    def test_flatouts_module_is_laid_into_the_environment_each_time_it_was_built(self):
        package = self.root / "crates/python/python/flatout"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("first")
        (package / "_native.abi3.so").write_text("of somebody's own build")
        library = self.root / "target/release/lib_native.so"
        library.parent.mkdir(parents=True)
        library.write_text("built")
        told = '{\\"reason\\":\\"compiler-artifact\\",\\"target\\":{\\"name\\":\\"_native\\"},\\"filenames\\":[\\"%s\\"]}' % library
        self.program(self.tools / "cargo", f'echo "cargo $*" >>"$CALLS"; echo "{told}"')
        table = {"module": "requirements.txt", "program": "peer.py"}
        with mock.patch.object(installer, "REPOSITORY", self.root):
            made = self.install(table)
            laid = made.folder / "lib/python3.11/site-packages/flatout"
            self.assertEqual((laid / "__init__.py").read_text(), "first")
            self.assertEqual((laid / "_native.abi3.so").read_text(), "built")
            (package / "__init__.py").write_text("second")
            self.install(table)
        self.assertEqual((laid / "__init__.py").read_text(), "second")
        self.assertEqual(made.argv, [str(made.folder / "bin/python"), str(self.peer / "peer.py")])
        self.assertEqual(len(self.called("-m venv")), 1)
        self.assertEqual(len(self.called("cargo build --release")), 2)

    def test_packages_that_do_not_fit_each_other_are_no_environment(self):
        self.set(FAKE_BROKEN="1")
        table = {"pip": "requirements.txt", "program": "tool"}
        self.assertIn("pip", self.error(table))
        self.assertIsNotNone(self.missing(table))


class Flatout(Sandbox):
    """The program under test is built in its own tree, whenever it is asked for."""

    def setUp(self):
        super().setUp()
        self.target = self.root / "target"
        self.set(CARGO_TARGET_DIR=str(self.target))
        flatout = self.target / "release/peer"
        message = f'{{"target":{{"name":"peer"}},"executable":"{flatout}"}}'
        self.program(self.tools / "cargo", f"echo \"cargo $*\" >>\"$CALLS\"; echo '{message}'")
        self.program(flatout, "echo flatout 0.1.0")

    def test_cargo_is_asked_each_time(self):
        for calls in (1, 2):
            made = self.install({"flatout": True})
            self.assertEqual((made.argv, made.version), ([str(self.target / "release/peer")], "0.1.0"))
            self.assertEqual(len(self.called("--package flatout-cli")), calls)

    def test_it_is_missing_until_it_was_built(self):
        self.assertIsNone(self.missing({"flatout": True}))
        (self.target / "release/peer").unlink()
        self.assertIn("make lab installs it (building, about 4 minutes", self.missing({"flatout": True}))


class Interrupted(Sandbox):
    TABLE = {"go-build": "."}

    def test_a_folder_without_its_mark_is_made_anew(self):
        whole = self.install(self.TABLE)
        (whole.folder / "whole").unlink()
        (whole.folder / "bin/stale").touch()
        self.assertIn("not installed: make lab installs it (building, about 1 minute on two cores)", self.missing(self.TABLE))
        again = self.install(self.TABLE)
        self.assertFalse((again.folder / "bin/stale").exists())
        self.assertIsNone(self.missing(self.TABLE))

    def test_a_failed_build_leaves_nothing_that_counts(self):
        self.set(FAKE_BROKEN="yes")
        self.error(self.TABLE)
        self.assertIsNotNone(self.missing(self.TABLE))

    def test_a_build_that_hangs_is_ended_and_told(self):
        self.set(FAKE_SLOW="yes")
        with mock.patch.object(installer, "LIMIT_S", 0.3):
            self.assertIn("go build -C … was not done after 0.3 s", self.error(self.TABLE))
        self.assertFalse(self.still_builds())
        self.assertIsNotNone(self.missing(self.TABLE))

    def test_ctrl_c_ends_the_build_and_all_that_it_started(self):
        self.set(FAKE_SLOW="yes")
        program = textwrap.dedent(f"""
            import sys
            from pathlib import Path
            sys.path.insert(0, {str(LAB)!r})
            from install import install
            install(Path({str(self.peer)!r}), {self.TABLE!r}, Path({str(self.cache)!r}))
        """)
        lab = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
        self.wait_for(lambda: list(self.cache.glob("peer-*/bin/peer.half")))
        self.assertTrue(self.still_builds())
        lab.send_signal(signal.SIGINT)
        lab.wait(timeout=60)
        self.assertIsNotNone(self.missing(self.TABLE))
        self.assertFalse(self.still_builds())
        # The lock went with it: the next run is not kept waiting.
        self.set(FAKE_SLOW="")
        self.install(self.TABLE)

    def still_builds(self):
        return subprocess.run(["pgrep", "-f", "--", f"-o {self.cache}"], stdout=subprocess.DEVNULL).returncode == 0

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, "the build did not start")
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
