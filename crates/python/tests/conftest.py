"""What the tests share: origins that end with them, clients, buckets of a test's own, and no variables of whoever runs them."""

import os
import random
import subprocess
import sys

import pytest

import origins

import flatout


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
    return origins.Bucket(serve, f"test-{random.getrandbits(64):016x}")


@pytest.fixture
def bucket_of(request):
    """A new bucket of any origin."""
    return lambda origin: origins.Bucket(origin, f"test-{random.getrandbits(64):016x}")


@pytest.fixture(scope="session")
def content():
    """Bytes that nothing repeats, of any length."""
    return lambda length, seed=0: random.Random(seed).randbytes(length)


@pytest.fixture
def python():
    """Runs a program of Python's in a process of its own; what it printed. `ends` is how it has to end."""

    def run(program, *arguments, ends=0):
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", program, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=origins.PATIENCE_S,
        )
        assert done.returncode == ends, f"ended by {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
