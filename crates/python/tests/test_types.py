"""What the checkers of types say to a program that uses the package: nothing where it is right, and something where it is not."""

import ast
import importlib
import inspect
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import flatout

TYPED = pathlib.Path(__file__).parent / "typed"
PACKAGE = pathlib.Path(flatout.__file__).parents[1]
MODULES = ["flatout", "flatout.errors", "flatout.safetensors", "flatout.compat.oss"]


def said(command, **variables):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
    return done.stdout + done.stderr


def mypy(tmp_path, file, version):
    """What mypy says, by line; it sees the package as installed."""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "--python-version", version]
    text = said([*command, str(TYPED / file)], MYPYPATH=str(PACKAGE), PYTHONPATH="")
    assert re.search(r"^(Success|Found)", text, re.M), text
    return {int(line): why for name, line, why in re.findall(r"^(\S+?):(\d+): error: (.*)$", text, re.M) if name.endswith(file)}


def pyright(tmp_path, file, version):
    settings = {
        "typeCheckingMode": "strict",
        "extraPaths": [str(PACKAGE)],
        "pythonVersion": version,
    }
    # It looks at what lies beside its settings.
    shutil.copy(TYPED / file, tmp_path)
    config = tmp_path / "pyrightconfig.json"
    config.write_text(json.dumps(settings))
    # What is not in the environment would be fetched, and no newer one is wanted.
    text = said([sys.executable, "-m", "pyright", "--project", str(config), "--outputjson", "--pythonpath", sys.executable], PYRIGHT_PYTHON_IGNORE_WARNINGS="1")
    told = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1: each["message"] for each in told if each["severity"] == "error"}


CHECKERS = pytest.mark.parametrize("check", [mypy, pyright])


@CHECKERS
@pytest.mark.parametrize("file, version", [("program.py", "3.11"), ("program.py", "3.14"), ("arrays.py", "3.12")])
def test_a_program_of_the_user_s_is_clean(tmp_path, check, file, version):
    wrong = check(tmp_path, file, version)
    assert not wrong, wrong


@CHECKERS
def test_mistakes_are_errors_before_they_run(tmp_path, check):
    lines = (TYPED / "mistakes.py").read_text().splitlines()
    wrong = check(tmp_path, "mistakes.py", "3.11")
    assert sorted(wrong) == [number for number, line in enumerate(lines, 1) if line.endswith("# error")], wrong


def test_the_program_uses_every_public_name():
    tree = ast.parse((TYPED / "program.py").read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    unused = []
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            if name not in used:
                unused.append(f"{module.__name__}.{name}")
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__.startswith("flatout"):
                unused += [f"{name}.{each}" for each in vars(value) if not each.startswith("_") and each not in used]
    assert not unused
