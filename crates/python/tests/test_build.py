"""The wheel and the demo are made by maturin and what is named for them: nothing of the test lab."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

import origins

PACKAGE = origins.ROOT / "crates/python"
# Where cargo is found; the tests have a home of their own.
HOME = {"HOME": os.environ.get("HOME", "")}
PINS = "".join((PACKAGE / name).read_text() for name in ("requirements.txt", "requirements-wheel.txt"))


@pytest.mark.parametrize("target", ["wheel", "demo-python"])
def test_it_is_made_without_the_test_lab(target):
    # Not as a part of the make that runs the tests.
    variables = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    make = ["make", "--dry-run", target]
    said = subprocess.run(make, cwd=origins.ROOT, env=variables, capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["scripts/python.sh", target.removesuffix("-python")]


@pytest.mark.parametrize("verb, names", [("wheel", ["auditwheel", "maturin", "packaging", "pyelftools", "ziglang"]), ("demo", ["maturin", "numpy", "safetensors", "tqdm"])])
def test_its_environment_has_what_is_named_and_no_more(tmp_path, verb, names):
    """Of an index that has nothing else, and these only as they are pinned."""
    index, cache = tmp_path / "index", tmp_path / "cache"
    index.mkdir()
    for name in names:
        put_package(index, name, re.search(rf"^{name}==(.+)$", PINS, re.MULTILINE)[1])
    variables = {"FLATOUT_CACHE": str(cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
    for _ in range(2):
        done = subprocess.run(
            [origins.ROOT / "scripts/deps.sh", verb],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=origins.PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        # Where it is, for a script; the rest is for whoever looks.
        (made,) = done.stdout.splitlines()
        assert os.listdir(cache) == [os.path.basename(made)] and os.access(f"{made}/bin/maturin", os.X_OK)
        installed = {each.name.partition("-")[0] for each in pathlib.Path(made).glob("lib/*/site-packages/*.dist-info")}
        assert installed - {"pip", "setuptools"} == set(names)
    # The second time it is there.
    assert done.stderr == ""


def put_package(index, name, version):
    """A wheel with a program of the package's name and nothing else."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        program = zipfile.ZipInfo(f"{name}-{version}.data/scripts/{name}")
        program.external_attr = 0o100755 << 16
        wheel.writestr(program, "#!python\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_the_sdist_has_all_that_a_build_needs(tmp_path):
    maturin = pathlib.Path(sys.executable).with_name("maturin")
    subprocess.run([maturin, "sdist", "--manifest-path", PACKAGE / "Cargo.toml", "--out", tmp_path], check=True, capture_output=True, env={**os.environ, **HOME})
    (made,) = tmp_path.glob("flatout-*.tar.gz")
    with tarfile.open(made) as archive:
        archive.extractall(tmp_path)
    root = tmp_path / made.name.removesuffix(".tar.gz")
    modules = {str(path.relative_to(PACKAGE)) for path in (PACKAGE / "python").rglob("*.py*") if path.suffix in (".py", ".pyi")}
    assert modules and all((root / name).is_file() for name in modules) and (root / "LICENSE-MIT").is_file()
    # Its workspace holds together, with the versions that are locked here.
    told = subprocess.run(["cargo", "metadata", "--offline", "--format-version", "1"], cwd=root, capture_output=True, text=True, env={**os.environ, **HOME})
    assert told.returncode == 0, told.stderr
    locked = (origins.ROOT / "Cargo.lock").read_text()
    for each in json.loads(told.stdout)["packages"]:
        assert f'name = "{each["name"]}"\nversion = "{each["version"]}"' in locked, each["id"]
        if each["source"] is None:
            library = [pathlib.Path(target["src_path"]) for target in each["targets"] if "test" not in target["kind"] and "bench" not in target["kind"]]
            assert all(path.is_file() and root in path.parents for path in library), each["id"]
