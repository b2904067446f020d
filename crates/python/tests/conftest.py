"""What the tests share: origins that end with them, clients, buckets of a test's own, and no variables of whoever runs them."""

import importlib
import os
import signal
import subprocess
import sys

import pytest

import origins

import flatout


#: What `scripts/python.sh test` runs the tests in, and what each has not got: tests that are skipped there, by name. Another
#: one that is skipped fails the run, as does a name here that is not.
SKIPPED = {
    # Debian 13 has a torch, which the next one sees.
    "package": {
        "tests/test_buffers.py::test_torch_shares_it",
        "tests/test_compat_torch.py",
        "tests/test_dcp.py",
        "tests/test_safetensors_torch.py",
        "tests/test_torch.py",
        "tests/test_torch_index.py",
        "tests/test_torch_loaders.py",
        "tests/test_torch_minio.py",
        "tests/test_torch_rows.py",
        "tests/test_torch_servers.py",
        "tests/test_torch_sharded.py",
        "tests/test_torch_tar.py",
        "tests/test_writers_torch.py",
    },
    "torch": {
        "tests/test_buffers.py::test_programs_that_want_bytes_and_those_that_do_not",
        "tests/test_safetensors.py::test_a_type_that_ml_dtypes_has_is_that",
    },
}


def pytest_addoption(parser):
    parser.addoption("--environment", choices=sorted(SKIPPED), help="which of those in conftest.py the tests run in")


class Skips:
    """Sees to it that nothing is skipped without a word."""

    def __init__(self, listed, is_whole):
        self.listed, self.is_whole = listed, is_whole
        self.found, self.files = {}, set()

    def pytest_runtest_logreport(self, report):
        self.look(report)

    def pytest_collectreport(self, report):
        self.files.add(report.nodeid.partition("::")[0])
        self.look(report)

    def look(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self.found[report.nodeid.partition("[")[0]] = report.longrepr[2]

    def wrong(self):
        for name in sorted(self.found.keys() - self.listed):
            yield f"{name} is not in SKIPPED of conftest.py: {self.found[name]}"
        for name in sorted(self.listed - self.found.keys()):
            if self.is_whole and name.partition("::")[0] in self.files:
                yield f"{name} is in SKIPPED of conftest.py and was not skipped: take it out there"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session, exitstatus):
        if exitstatus == pytest.ExitCode.OK and any(self.wrong()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for line in self.wrong():
            terminalreporter.write_line(f"FAILED {line}", red=True)


def pytest_configure(config):
    name = config.getoption("--environment")
    if name is not None:
        chosen = config.option.keyword or config.option.markexpr or any("::" in each for each in config.args)
        config.pluginmanager.register(Skips(SKIPPED[name], not chosen))


@pytest.fixture(scope="session", autouse=True)
def surroundings(tmp_path_factory):
    """The home and the variables of nobody."""
    strange = ("AWS_", "FLATOUT_", "OSS_", "ALIBABA_", "ALICLOUD_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    for name in list(os.environ):
        if name.upper().startswith(strange):
            del os.environ[name]
    os.environ.update(origins.VARIABLES, HOME=str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def serve(surroundings):
    """`flatout serve`, in memory; its log is for tests that start one of their own."""
    origin = origins.serve()
    yield origin
    origin.stop()


@pytest.fixture(scope="session")
def minio(surroundings, tmp_path_factory):
    origin = origins.minio(tmp_path_factory.mktemp("minio"))
    yield origin
    origin.stop()


@pytest.fixture(scope="session")
def started(surroundings, tmp_path_factory):
    """Starts `flatout serve` with arguments of the test's own, and a log."""
    running = []

    def start(*arguments):
        running.append(origins.serve(*arguments, log=tmp_path_factory.mktemp("serve") / "log"))
        return running[-1]

    yield start
    for origin in running:
        origin.stop()


@pytest.fixture
def client(serve):
    with flatout.Client(**serve.settings) as client:
        yield client


@pytest.fixture
def bucket(serve, request):
    """A new bucket of `serve`."""
    return origins.Bucket(serve, origins.new_name())


@pytest.fixture
def bucket_of(request):
    """A new bucket of any origin."""
    return lambda origin: origins.Bucket(origin, origins.new_name())


@pytest.fixture(scope="session")
def content():
    """Bytes that nothing repeats, of any length, the same in each run."""
    return origins.noise


@pytest.fixture
def register_again():
    """What a test registers at fsspec is taken back."""
    tables = importlib.import_module("fsspec.registry")
    loaded, known = dict(tables._registry), dict(tables.known_implementations)
    yield
    for table, before in ((tables._registry, loaded), (tables.known_implementations, known)):
        table.clear()
        table.update(before)


@pytest.fixture
def python():
    """Runs a program of Python's in a process of its own; what it printed. `ends` is how it has to end."""

    def run(program, *arguments, ends=0):
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", program, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=origins.PATIENCE_S,
            # A shell lets its background jobs ignore it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert done.returncode == ends, f"ended by {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
