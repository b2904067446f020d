#!/usr/bin/env python3
"""Moves the line tables of a wheel's library into a file beside the wheel: strip_wheel.py dist/flatout-….whl

dist/flatout-….debug is found by gdb, perf and Rust's own backtraces once it lies beside flatout/_native.abi3.so, or in
the folder .debug there (scripts/strip.sh).
"""

import base64
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

STRIP = pathlib.Path(__file__).with_name("strip.sh")


def main(wheel: pathlib.Path) -> None:
    symbols = wheel.with_suffix(".debug")
    with tempfile.TemporaryDirectory(dir=wheel.parent) as folder:
        rewritten = pathlib.Path(folder, wheel.name)
        with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(rewritten, "w", zipfile.ZIP_DEFLATED) as new:
            [library] = [name for name in old.namelist() if name.endswith(".so")]
            [record] = [name for name in old.namelist() if name.endswith(".dist-info/RECORD")]
            whole, stripped = pathlib.Path(folder, "whole.so"), pathlib.Path(folder, "stripped.so")
            whole.write_bytes(old.read(library))
            subprocess.run([STRIP, whole, stripped, symbols], check=True)
            for entry in old.infolist():
                content = stripped.read_bytes() if entry.filename == library else old.read(entry)
                if entry.filename == record:
                    content = with_row(content.decode(), library, stripped.read_bytes()).encode()
                new.writestr(entry, content, zipfile.ZIP_DEFLATED)
        os.replace(rewritten, wheel)


def with_row(record: str, name: str, content: bytes) -> str:
    """The table of the wheel's files, with another hash and size for one of them."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    rows = [row for row in record.splitlines() if not row.startswith(f"{name},")]
    return "\n".join([f"{name},sha256={digest},{len(content)}", *rows, ""])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
