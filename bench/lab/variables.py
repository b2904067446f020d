"""The `{variables}` of a peer's command line."""

import re

from errors import nearest

NAME = re.compile(r"\{([A-Za-z_]*)\}")

# In every command line.
ALWAYS = {"program", "folder", "endpoint", "bucket", "access_key", "secret_key", "ca", "work", "cores", "settings", "tls"}
# What a kind of work adds, and what a landing of it.
OF_WORK = {
    "get": {"url", "key", "bytes"},
    "many": {"prefix", "keys"},
    "put": {"source"},
    "mount": {"mount_point"},
    "python": {"url", "key", "bytes"},
}
OF_LANDING = {
    ("get", "file"): {"target"},
    ("many", "files"): {"target"},
    ("put", "file"): {"url", "key"},
    ("put", "pipe"): {"url", "key"},
    ("put", "files"): {"prefix"},
}
OF_SWEEP = {"parallel", "part_bytes", "part_mib"}

# Where one argument stands for any number of them.
SPLICED = {"program", "settings", "tls"}


def of(work: str, landing: str) -> set[str]:
    """The variables of a call."""
    return ALWAYS | OF_WORK[work] | OF_LANDING.get((work, landing), set())


def unknown(argument: str, known: set[str]) -> str | None:
    """What is wrong with the variables of an argument, None when nothing is."""
    for name in NAME.findall(argument):
        if name not in known:
            return f"{{{name}}} is no variable here{nearest(name, known)}"
        if name in SPLICED and argument != f"{{{name}}}":
            return f"{{{name}}} must be an argument of its own, not a part of {argument!r}"
    return None


def fill(arguments: list[str], values: dict[str, str], spliced: dict[str, list[str]]) -> list[str]:
    """The arguments with their variables' values."""
    filled = []
    for argument in arguments:
        name = argument[1:-1]
        if argument == f"{{{name}}}" and name in spliced:
            filled += spliced[name]
        else:
            filled.append(NAME.sub(lambda found: values[found[1]], argument))
    return filled
