"""How a peer comes onto this machine: built or fetched once, into a folder of the cache that is whole or is not there.

A peer's folder is named after what defines it, so that a change of the peer makes it anew:

    CACHE/NAME-HASH/bin/…    the programs; with pip the folder is a virtual environment
    CACHE/NAME-HASH/whole    written last: without it the folder is what an interrupted build left, and is made anew
    CACHE/build/NAME/        what the compiler keeps between builds
    CACHE/NAME.log           all that the tools said at the last build

Nothing outside the cache is touched, but for Debian's packages and the tools' own stores (CARGO_HOME, GOMODCACHE).
"""

import contextlib
import difflib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from progress import say

REPOSITORY = Path(__file__).resolve().parents[2]

# Debian's own: another python3 in the caller's PATH may have no venv, or be gone at the next run.
PYTHON = "/usr/bin/python3"

# What the newest of the peers asks for in its go.mod: 1.25.
GO_MINOR = 25

# Where Debian's packages put their programs: one of that name in the caller's PATH may be another's.
DEBIAN_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"

# No build takes as long; a registry that does not answer would keep one waiting for ever.
LIMIT_S = 3600

# How many of a failed tool's last lines an error shows; the rest is in the log.
LAST_LINES = 12


class InstallError(Exception):
    """Why a peer could not be installed, and what to do about it."""


@dataclass(frozen=True)
class Installed:
    """A peer that can be called: what `{program}` stands for, and the folder that holds it."""

    argv: list[str]
    # Only where this machine decides it (Debian's packages, flatout); else empty: peer.toml has it.
    version: str
    folder: Path


def default_cache() -> Path:
    """The lab's folder in the cache that scripts/deps.sh uses as well."""
    return Path(os.environ.get("FLATOUT_CACHE") or Path.home() / ".cache/flatout") / "lab"


def install(peer_folder: Path, table: dict, cache: Path) -> Installed:
    """Makes sure that the peer is there, and says how to call it. Raises InstallError."""
    recipe = read_recipe(peer_folder, table, cache)
    way = WAYS[recipe.way]
    if not way.is_there(recipe):
        with only_one(recipe):
            # What came while this one waited is not made again.
            if not way.is_there(recipe):
                start_log(recipe)
                install_packages(recipe)
                way.make(recipe)
    return way.installed(recipe)


def missing(peer_folder: Path, table: dict, cache: Path) -> str | None:
    """Why the peer cannot be called yet, and what installs it; None when it can. Builds nothing."""
    recipe = read_recipe(peer_folder, table, cache)
    if WAYS[recipe.way].is_there(recipe):
        return None
    return needs(recipe) or f"{recipe.name} is not installed: make lab installs it ({recipe.about()})"


# ---- what [install] says


@dataclass(frozen=True)
class Recipe:
    """The [install] table of a peer, read and checked."""

    name: str
    source: Path
    way: str
    # What the way's own key holds: a module and version, a path, a file.
    what: str
    program: str
    # go: the package within the module.
    package: str
    # pip: Debian's Python packages are seen as well.
    system: bool
    # Debian packages: the peer itself (apt), or what its build needs.
    packages: tuple[str, ...]
    minutes: float
    cache: Path
    place: Path

    @property
    def whole(self) -> Path:
        return self.place / "whole"

    @property
    def log(self) -> Path:
        return self.cache / f"{self.name}.log"

    @property
    def build_folder(self) -> Path:
        return self.cache / "build" / self.name

    def about(self) -> str:
        """What happens, and for how long."""
        minutes = "under a minute" if self.minutes < 1 else f"about {self.minutes:g} minute{'s' * (self.minutes > 1)}"
        return f"{WAYS[self.way].doing}, {minutes} on two cores"


# Keys of [install] that go with a way, and their types.
BESIDE_A_WAY = {"program": str, "package": str, "apt": list, "minutes": (int, float), "system": bool}


def read_recipe(peer_folder: Path, table: dict, cache: Path) -> Recipe:
    where = f"{peer_folder / 'peer.toml'}: [install]"
    check_keys(where, table)
    way = the_way(where, table)
    what = "" if isinstance(table[way], (bool, list)) else table[way]
    if way == "go" and not re.fullmatch(r"[^@\s]+@v[^@\s]+", what):
        raise InstallError(f"{where}: go is MODULE@vVERSION, not {what!r}")
    cache = cache.absolute()
    name = peer_folder.name
    return Recipe(
        name=name,
        source=peer_folder.absolute(),
        way=way,
        what=what,
        program=table.get("program", name).removeprefix("bin/"),
        package=table.get("package") or what.partition("@")[0],
        system=table.get("system", False),
        packages=tuple(table.get("apt", ())),
        minutes=table.get("minutes", WAYS[way].minutes),
        cache=cache,
        place=cache / f"{name}-{fingerprint(peer_folder, table, way)}",
    )


def check_keys(where: str, table: dict):
    """Every key is one that we know, of its type."""
    for key, value in table.items():
        kind = BESIDE_A_WAY.get(key) or (WAYS[key].kind if key in WAYS else None)
        if kind is None:
            near = difflib.get_close_matches(key, [*WAYS, *BESIDE_A_WAY], 1, 0.4)
            hint = f"did you mean {near[0]}?" if near else f"the ways are {', '.join(WAYS)}"
            raise InstallError(f"{where}: no key {key}; {hint}")
        if not isinstance(value, kind) or (key == "flatout" and value is not True):
            raise InstallError(f"{where}: {key} = {value!r} is of the wrong type")
    if any(not isinstance(package, str) for package in table.get("apt", ())):
        raise InstallError(f"{where}: apt is a list of package names, not {table['apt']!r}")


def the_way(where: str, table: dict) -> str:
    """The one way in the table. `apt` beside another way is what its build needs."""
    ways = [key for key in table if key in WAYS]
    if len(ways) > 1 and "apt" in ways:
        ways.remove("apt")
    if len(ways) != 1:
        raise InstallError(f"{where}: write exactly one of {', '.join(WAYS)}; there is {' and '.join(ways) or 'none'}")
    return ways[0]


def fingerprint(peer_folder: Path, table: dict, way: str) -> str:
    """Names what a peer is made of: what [install] says, the sources, the lock files."""
    digest = hashlib.sha256()
    digest.update(json.dumps({k: v for k, v in table.items() if k != "minutes"}, sort_keys=True).encode())
    for path in WAYS[way].sources(peer_folder, table):
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(peer_folder)}\0{len(content)}\0".encode() + content)
    if isinstance(WAYS[way], Pip):
        # An environment holds links to the Python that made it.
        digest.update(os.path.realpath(PYTHON).encode())
    return digest.hexdigest()[:12]


# ---- what must be on the machine first


def needs(recipe: Recipe) -> str | None:
    """What a person must do before the peer can be built here."""
    lacking = lacking_packages(recipe.packages)
    if lacking and not may_install_packages():
        return f"{recipe.name} needs Debian's {' '.join(lacking)}: sudo apt-get install {' '.join(lacking)}"
    return WAYS[recipe.way].needs(recipe)


def lacking_packages(packages) -> list[str]:
    return [package for package in packages if dpkg(package, "${db:Status-Status}") != "installed"]


def dpkg(package: str, field: str) -> str:
    """A field of an installed package; empty where there is no such package, or no dpkg."""
    try:
        asked = subprocess.run(["dpkg-query", "-W", f"-f={field}", package], capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def may_install_packages() -> bool:
    return os.geteuid() == 0 or os.environ.get("CI") == "true"


def install_packages(recipe: Recipe):
    """Debian's packages for the peer; anything else that a person must do first is an error."""
    reason = needs(recipe)
    if reason:
        raise InstallError(reason)
    lacking = lacking_packages(recipe.packages)
    if not lacking:
        return
    say(f"{recipe.name}: apt-get install {' '.join(lacking)}")
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    # Runlevel 1: a package must not start a server of its own.
    apt_get = [*root, "env", "RUNLEVEL=1", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]
    run(recipe, [*apt_get, "update"])
    run(recipe, [*apt_get, "install", "-y", "--no-install-recommends", *lacking])


def needs_go(recipe: Recipe) -> str | None:
    # Debian 12's own Go is too old, and fails with words that do not say so.
    try:
        asked = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, env=with_env(GO_ENV))
        version = asked.stdout.strip()
    except FileNotFoundError:
        version = ""
    found = re.match(r"go1\.(\d+)", version)
    if found and int(found[1]) >= GO_MINOR:
        return None
    here = version or "no go in PATH"
    return f"{recipe.name} is built with Go 1.{GO_MINOR} or newer, here is {here}: install it from https://go.dev/dl"


def needs_cargo(recipe: Recipe) -> str | None:
    if shutil.which("cargo"):
        return None
    return f"{recipe.name} is built with Rust, and no cargo is in PATH: install it from https://rustup.rs"


def needs_python(recipe: Recipe) -> str | None:
    try:
        if subprocess.run([PYTHON, "-c", "import ensurepip"], capture_output=True).returncode == 0:
            return None
    except FileNotFoundError:
        pass
    return f"{recipe.name} needs {PYTHON} with venv: sudo apt-get install python3-venv"


# ---- the ways


# The toolchain that is here: another one would be fetched without a word.
GO_ENV = {"GOTOOLCHAIN": "local"}


class Way:
    """How peers of one kind are made. This one: built into a folder of the cache."""

    kind: type = str
    doing = "building"
    minutes = 1.0

    def sources(self, folder: Path, table: dict) -> list[Path]:
        """The files that define the peer beside [install]."""
        return []

    def needs(self, recipe: Recipe) -> str | None:
        return None

    def is_there(self, recipe: Recipe) -> bool:
        return recipe.whole.is_file()

    def make(self, recipe: Recipe):
        shutil.rmtree(recipe.place, ignore_errors=True)
        (recipe.place / "bin").mkdir(parents=True)
        with told(recipe):
            self.build(recipe, recipe.place / "bin")
        self.check(recipe)
        # Last, and whole at once.
        made = recipe.place / "whole.new"
        made.write_text(f"{recipe.way} {recipe.what}\n")
        made.rename(recipe.whole)

    def build(self, recipe: Recipe, programs: Path):
        raise NotImplementedError

    def check(self, recipe: Recipe):
        """The build made the program that peer.toml names."""
        if not os.access(recipe.place / "bin" / recipe.program, os.X_OK):
            made = sorted(path.name for path in (recipe.place / "bin").iterdir())
            raise InstallError(f"{recipe.name}: the build made no program {recipe.program}, but {', '.join(made) or 'none'}")

    def installed(self, recipe: Recipe) -> Installed:
        return Installed([str(recipe.place / "bin" / recipe.program)], "", recipe.place)


class GoInstall(Way):
    """A program of a public Go module."""

    minutes = 3.0

    def needs(self, recipe: Recipe) -> str | None:
        return needs_go(recipe)

    def build(self, recipe: Recipe, programs: Path):
        module, _, version = recipe.what.partition("@")
        try:
            run(recipe, ["go", "install", "-trimpath", f"{recipe.package}@{version}"], {**GO_ENV, "GOBIN": str(programs)})
        except InstallError:
            # Refused for modules with replacements, and where a proxy does not list versions: the same program comes of
            # an empty module that requires this one. What fails for another reason fails here again, and is told.
            self.build_in_wrapper(recipe, programs, f"{module}@{version}")

    def build_in_wrapper(self, recipe: Recipe, programs: Path, required: str):
        wrapper = recipe.build_folder
        shutil.rmtree(wrapper, ignore_errors=True)
        wrapper.mkdir(parents=True)
        there = ["-C", str(wrapper)]
        run(recipe, ["go", "mod", "init", *there, "wrapper"], GO_ENV)
        run(recipe, ["go", "mod", "edit", *there, f"-require={required}"], GO_ENV)
        run(recipe, ["go", "build", *there, "-mod=mod", "-trimpath", "-o", f"{programs}/", recipe.package], GO_ENV)


class GoBuild(Way):
    """A package of the go.mod in the peer's folder: `.`, or that of a module which it pins."""

    def needs(self, recipe: Recipe) -> str | None:
        return needs_go(recipe)

    def sources(self, folder: Path, table: dict) -> list[Path]:
        return sorted([*folder.rglob("*.go"), *folder.glob("go.mod"), *folder.glob("go.sum")])

    def build(self, recipe: Recipe, programs: Path):
        build = ["go", "build", "-C", str(recipe.source), "-mod=readonly", "-trimpath"]
        run(recipe, [*build, "-o", str(programs / recipe.program), recipe.what], GO_ENV)


class Cargo(Way):
    """A program of the Cargo.toml and Cargo.lock in the peer's folder."""

    minutes = 5.0

    def needs(self, recipe: Recipe) -> str | None:
        return needs_cargo(recipe)

    def sources(self, folder: Path, table: dict) -> list[Path]:
        crate = folder / table["cargo"]
        found = [*crate.glob("Cargo.*"), *crate.glob("*.rs"), *(crate / "src").rglob("*"), *(crate / ".cargo").rglob("*")]
        return sorted(path for path in found if path.is_file())

    def build(self, recipe: Recipe, programs: Path):
        manifest = recipe.source / recipe.what / "Cargo.toml"
        target = ["--target-dir", str(recipe.build_folder)]
        shutil.copy2(cargo_build(recipe, manifest, "--locked", *target), programs)


class Pip(Way):
    """Python packages, all of them pinned, in an environment of their own."""

    doing = "pip install"

    def needs(self, recipe: Recipe) -> str | None:
        return needs_python(recipe)

    def sources(self, folder: Path, table: dict) -> list[Path]:
        return [folder / table["pip"]]

    def build(self, recipe: Recipe, programs: Path):
        pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check"]
        run(recipe, [PYTHON, "-m", "venv", str(recipe.place), *(["--system-site-packages"] if recipe.system else [])])
        run(recipe, [*pip, "install", "-q", "--no-deps", "-r", str(recipe.source / recipe.what)])
        if not recipe.system:
            # Debian's torch is older than what some ask for; whether it does is seen in the check of each cell.
            run(recipe, [*pip, "check"])

    def check(self, recipe: Recipe):
        if not recipe.program.endswith(".py"):
            super().check(recipe)

    def installed(self, recipe: Recipe) -> Installed:
        if not recipe.program.endswith(".py"):
            return super().installed(recipe)
        return Installed([str(recipe.place / "bin/python"), str(recipe.source / recipe.program)], "", recipe.place)


class Module(Pip):
    """Flatout's Python package: this repository's, built for release and laid into an environment as its wheel would be."""

    doing = "pip install, then building"
    minutes = 5.0

    def sources(self, folder: Path, table: dict) -> list[Path]:
        return [folder / table["module"]]

    def needs(self, recipe: Recipe) -> str | None:
        return needs_cargo(recipe) or super().needs(recipe)

    def installed(self, recipe: Recipe) -> Installed:
        """Built anew where the sources changed, which cargo knows."""
        library = cargo_build(recipe, REPOSITORY / "Cargo.toml", "--locked", "--package", "flatout-python", library="_native")
        package = next((recipe.place / "lib").glob("python3*/site-packages")) / "flatout"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(REPOSITORY / "crates/python/python/flatout", package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        shutil.copy2(library, package / "_native.abi3.so")
        return super().installed(recipe)


class Apt(Way):
    """A program of Debian's."""

    kind = list
    doing = "apt-get install"
    minutes = 0.5

    def is_there(self, recipe: Recipe) -> bool:
        return not lacking_packages(recipe.packages) and self.program(recipe) is not None

    def make(self, recipe: Recipe):
        if not self.program(recipe):
            packages = " ".join(recipe.packages)
            raise InstallError(f"{recipe.name}: no program {recipe.program} in {DEBIAN_PATH} with {packages} installed")

    def program(self, recipe: Recipe) -> str | None:
        return shutil.which(recipe.program, path=DEBIAN_PATH)

    def installed(self, recipe: Recipe) -> Installed:
        program = self.program(recipe)
        return Installed([program], dpkg(recipe.packages[0], "${Version}"), Path(program).parent)


class Flatout(Way):
    """The program under test: this repository's, built anew where it changed, which cargo knows."""

    kind = bool
    minutes = 4.0

    def needs(self, recipe: Recipe) -> str | None:
        return needs_cargo(recipe)

    def is_there(self, recipe: Recipe) -> bool:
        target = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target")
        return (target / "release" / recipe.program).is_file()

    def make(self, recipe: Recipe):
        say(f"{recipe.name}: {recipe.about()}")

    def installed(self, recipe: Recipe) -> Installed:
        start_log(recipe)
        program = cargo_build(recipe, REPOSITORY / "Cargo.toml", "--locked", "--package", "flatout-cli")
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
        return Installed([str(program)], version, program.parent)


WAYS: dict[str, Way] = {
    "go": GoInstall(),
    "go-build": GoBuild(),
    "cargo": Cargo(),
    "pip": Pip(),
    "module": Module(),
    "apt": Apt(),
    "flatout": Flatout(),
}


def cargo_build(recipe: Recipe, manifest: Path, *options: str, library: str | None = None) -> Path:
    """The recipe's program, or the library, built for release; cargo says where it is."""
    command = ["cargo", "build", "--release", "--manifest-path", str(manifest), *options]
    name = library or recipe.program
    for line in run(recipe, [*command, "--message-format=json-render-diagnostics"], answers=True).splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("target", {}).get("name") != name:
            continue
        if library:
            made = [Path(file) for file in message.get("filenames", ()) if file.endswith(".so")]
        else:
            made = [Path(message["executable"])] if message.get("executable") else []
        if made:
            return made[0]
    raise InstallError(f"{recipe.name}: {manifest} has no {'library' if library else 'program'} {name}")


# ---- running the tools


def start_log(recipe: Recipe):
    recipe.cache.mkdir(parents=True, exist_ok=True)
    recipe.log.write_text("")


def run(recipe: Recipe, command: list[str], env: dict[str, str] | None = None, answers: bool = False) -> str:
    """Runs a tool; what it says goes to the log, and what it answers to whoever asked. A failure ends with its last words."""
    with recipe.log.open("a+", errors="replace") as log:
        log.write(f"$ {' '.join(command)}\n")
        log.flush()
        start = log.tell()
        # A group of its own: an interrupt ends all of it, whoever sent it.
        child = subprocess.Popen(
            command, env=with_env(env or {}), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if answers else log,
            stderr=log, text=True, errors="replace", process_group=0,
        )
        with ended_with_us(child):
            answer, ending = wait(child)
        if child.returncode == 0:
            return answer or ""
        log.seek(start)
        last = log.read().splitlines()[-LAST_LINES:]
    failed = f"{recipe.name}: {' '.join(command[:3])} … {ending} (all of it: {recipe.log})"
    raise InstallError("\n    ".join([failed, *last]))


def wait(child: subprocess.Popen) -> tuple[str | None, str]:
    """Its standard output where that is kept, and how it ended."""
    try:
        answer = child.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        end(child)
        return None, f"was not done after {LIMIT_S} s"
    return answer, f"failed, exit status {child.returncode}"


@contextlib.contextmanager
def ended_with_us(child: subprocess.Popen):
    """Whatever ends the wait, ctrl-C for one, ends the child."""
    try:
        yield
    except BaseException:
        end(child)
        raise


def end(child: subprocess.Popen):
    """Ends the child and all that it started: with time to clean up, but not for ever."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=10)
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def with_env(env: dict[str, str]) -> dict[str, str]:
    return {**os.environ, **env}


@contextlib.contextmanager
def only_one(recipe: Recipe):
    """Two runs of the lab install a peer one after the other; the second finds it there."""
    try:
        recipe.cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InstallError(f"{recipe.cache}: {error.strerror}: name another cache by FLATOUT_CACHE") from None
    with (recipe.cache / f"{recipe.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{recipe.name}: another run is installing it; waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def told(recipe: Recipe):
    """A line before what takes minutes, and one after it."""
    start = time.monotonic()
    say(f"{recipe.name}: {recipe.about()}")
    yield
    say(f"{recipe.name}: done in {time.monotonic() - start:.0f} s")
