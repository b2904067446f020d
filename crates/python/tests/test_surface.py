"""What the package shows: every name is there, documented, and as its stubs say."""

import ast
import importlib
import inspect
import pathlib
import subprocess
import sys

import pytest

import flatout

MODULES = ["flatout", "flatout.errors", "flatout.io", "flatout.aio", "flatout.client", "flatout.verbs", "flatout._settings", "flatout.safetensors", "flatout._native"]


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


def stubbed():
    """Every class, method, property and function of the native half, with the text that the stub has for it."""
    stub = pathlib.Path(flatout.__file__).parent / "_native.pyi"
    for node in ast.parse(stub.read_text()).body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or not hasattr(flatout._native, node.name):
            continue
        yield node.name, getattr(flatout._native, node.name), ast.get_docstring(node)
        if isinstance(node, ast.ClassDef):
            # Of several forms one has the text.
            texts = {}
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    texts[each.name] = ast.get_docstring(each) or texts.get(each.name)
            for name, text in texts.items():
                yield f"{node.name}.{name}", vars(getattr(flatout._native, node.name)).get(name), text


def test_help_shows_what_the_stub_says():
    """The text stood in the stub alone, and `help(flatout.read)` showed nothing."""
    checked = 0
    for name, value, text in stubbed():
        if text is not None:
            assert inspect.cleandoc(value.__doc__ or "") == text, name
            checked += 1
    assert checked > 60


def test_help_of_a_function_is_that_of_its_verb():
    for name in flatout.verbs.__all__:
        text, verb = getattr(flatout, name).__doc__, inspect.cleandoc(getattr(flatout.Client, name).__doc__)
        assert "client: whose settings count" in text, name
        said = [line for line in text.splitlines() if "client: whose settings count" not in line and line != "Args:" and line]
        assert said == [line for line in verb.splitlines() if line != "Args:" and line], name
        if name != "open":
            assert getattr(flatout.AsyncClient, name).__doc__ == getattr(flatout.Client, name).__doc__, name


def test_asyncio_has_every_verb_with_the_same_arguments():
    for name in flatout.verbs.__all__:
        ours = inspect.signature(getattr(flatout.AsyncClient, name)).parameters
        theirs = inspect.signature(getattr(flatout.Client, name)).parameters
        of = lambda many: [(each.name, each.kind, each.default) for each in many.values() if each.name != "self"]
        assert of(ours) == of(theirs), name


def test_the_functions_are_the_client_s_verbs():
    for name in flatout.verbs.__all__:
        ours = inspect.signature(getattr(flatout, name)).parameters
        theirs = [each for each in inspect.signature(getattr(flatout.Client, name)).parameters.values() if each.name != "self"]
        more = [each.name for each in theirs if each.kind == each.VAR_KEYWORD]
        assert [*ours] == [*(each.name for each in theirs if each.name not in more), "client", *more], name
        for each in theirs:
            assert (ours[each.name].default, ours[each.name].kind) == (each.default, each.kind), (name, each)
    both = (flatout.Client, flatout._native.Client)
    verbs = {name for half in both for name, value in vars(half).items() if callable(value) and not name.startswith("_")}
    assert verbs - {"file", "close"} == set(flatout.verbs.__all__)


def test_the_stubs_say_what_is_there(tmp_path):
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
