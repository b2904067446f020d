"""Runs every case against `flatout serve --memory` and `--root`; the cases that fail on purpose are in expected_failures.txt."""

import ctypes
import os
import pathlib
import re
import signal
import subprocess
import uuid

import pytest

import support

HERE = pathlib.Path(__file__).parent
STORES = ("memory", "root")

# Of each store: cases in all, and cases that pass.
LEAST_CASES, LEAST_PASSING = 260, 240


def pytest_collection_modifyitems(config, items):
    """Marks the cases of the table. A row that names none is a mistake, and one that passes is a failure."""
    names = {case_of(item) for item in items}
    rows = expected_failures()
    whole = not (config.option.keyword or config.option.markexpr or config.args_source.name == "ARGS")
    if whole:
        unknown = sorted(set(rows) - names)
        assert not unknown, f"expected_failures.txt names no case: {', '.join(unknown)}"
        passing = len(names) - len(rows)
        assert len(names) >= LEAST_CASES, f"{len(names)} cases, and there are to be {LEAST_CASES}"
        assert passing >= LEAST_PASSING, f"{passing} cases are to pass, and there are to be {LEAST_PASSING}"
    for item in items:
        if case_of(item) in rows:
            item.add_marker(pytest.mark.xfail(reason=rows[case_of(item)], strict=True))


def case_of(item):
    """The name of a case is that of its test, without the store."""
    test, _, parameters = item.name.rstrip("]").partition("[")
    parameters = re.sub(r"(^|-)(memory|root)(?=-|$)", "", parameters, count=1).strip("-")
    return f"{test}[{parameters}]" if parameters else test


def expected_failures():
    rows = {}
    for line in (HERE / "expected_failures.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split(None, 1)
            rows[name] = reason
    return rows


@pytest.fixture(scope="session", params=STORES)
def url(request, tmp_path_factory):
    """An origin that asks for keys."""
    # /tmp may be a tmpfs, which had no extended attributes before Linux 6.6.
    root = tmp_path_factory.mktemp("root")
    store = ["--memory"] if request.param == "memory" else ["--root", str(root)]
    keys = ["--access-key", support.ACCESS_KEY, "--secret-key", support.SECRET_KEY]
    command = [os.environ["FLATOUT"], "serve", "--listen", "127.0.0.1:0", *store, *keys]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=_die_with_parent)
    yield re.search(r"http://[0-9.:]+", process.stdout.readline()).group()
    process.terminate()
    process.wait(60)
    process.stdout.close()


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nothing stays, however the tests end


@pytest.fixture(scope="session")
def s3(url):
    return support.client(url)


@pytest.fixture
def new_bucket(s3):
    """Makes one more bucket."""

    def make():
        name = f"case-{uuid.uuid4().hex[:20]}"
        s3.create_bucket(Bucket=name)
        return name

    return make


@pytest.fixture
def bucket(new_bucket):
    return new_bucket()
