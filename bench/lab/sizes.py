"""Sizes as people write them."""

import re

UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
GIB = 1 << 30
MIB = 1 << 20


def parse_size(text: str) -> int:
    """`8MiB` in bytes. Raises ValueError with what would do."""
    found = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text.strip())
    if not found or found[2] not in UNITS:
        raise ValueError(f"{text!r} is no size; write one as 128KiB, 8MiB or 4GiB")
    return int(found[1]) * UNITS[found[2]]


def format_size(count: int) -> str:
    """The shortest exact form: `8MiB`, and plain bytes where no unit divides."""
    for unit in ("GiB", "MiB", "KiB"):
        if count and count % UNITS[unit] == 0:
            return f"{count // UNITS[unit]}{unit}"
    return f"{count}B"


def rounded(count: float) -> str:
    """For people, where exactness does not matter."""
    for unit in ("GiB", "MiB", "KiB"):
        if count >= UNITS[unit]:
            return f"{count / UNITS[unit]:.1f} {unit}"
    return f"{count:.0f} B"
