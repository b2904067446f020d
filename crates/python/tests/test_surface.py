"""What the package shows: every name is there, documented, and as its stubs say."""

import importlib
import inspect
import pathlib
import subprocess
import sys

import pytest

import flatout

MODULES = ["flatout", "flatout.errors", "flatout.io", "flatout.aio", "flatout.client", "flatout.verbs", "flatout.safetensors", "flatout._native"]


@pytest.mark.parametrize("name", MODULES)
def test_every_name_is_there_once_and_documented(name):
    module = importlib.import_module(name)
    shown = module.__all__
    assert len(set(shown)) == len(shown), [each for each in shown if shown.count(each) > 1]
    assert all(hasattr(module, each) for each in shown), [each for each in shown if not hasattr(module, each)]
    assert module.__doc__
    for each in shown:
        value = getattr(module, each)
        if name != "flatout._native" and (inspect.isclass(value) or inspect.isfunction(value)):
            assert value.__doc__, each


def test_the_functions_are_the_client_s_verbs():
    for name in flatout.verbs.__all__:
        ours = inspect.signature(getattr(flatout, name)).parameters
        theirs = [each for each in inspect.signature(getattr(flatout.Client, name)).parameters.values() if each.name != "self"]
        assert [*ours] == [*(each.name for each in theirs), "client"], name
        for each in theirs:
            assert (ours[each.name].default, ours[each.name].kind) == (each.default, each.kind), (name, each)
    verbs = {name for name, value in vars(flatout._native.Client).items() if callable(value) and not name.startswith("_")}
    assert verbs - {"file", "close"} == set(flatout.verbs.__all__) - {"open"}


def test_the_stubs_say_what_is_there(tmp_path):
    pytest.importorskip("mypy")
    allowed = tmp_path / "allowed"
    # PEP 688's method, which classes of the stable ABI have from 3.12 on.
    allowed.write_text("flatout._native.Buffer.__buffer__\n")
    command = [sys.executable, "-m", "mypy.stubtest", "flatout._native", "--ignore-disjoint-bases", "--allowlist", str(allowed)]
    if sys.version_info >= (3, 12):
        command.append("--ignore-unused-allowlist")
    path = pathlib.Path(flatout.__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "MYPYPATH": str(path), "PYTHONPATH": str(path)}, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed():
    assert (pathlib.Path(flatout.__file__).parent / "py.typed").exists()


def test_nothing_heavy_is_imported():
    heavy = "numpy torch pandas pyarrow fsspec tqdm safetensors boto3"
    program = f"import sys, flatout; print([name for name in {heavy!r}.split() if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"
