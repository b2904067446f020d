"""A table of a TOML file that is read key by key: a missing key, a wrong type or an unknown key names the file and the key."""

import difflib
import tomllib
from pathlib import Path

from errors import UsageError, nearest
from sizes import parse_size

MISSING = object()


class Table:
    """What was never asked for is unknown: call `finish` when everything was read."""

    def __init__(self, file: Path, path: str, data: dict):
        self.file, self.path, self.data = file, path, data
        self.known: set[str] = set()

    @staticmethod
    def load(file: Path) -> "Table":
        try:
            return Table(file, "", tomllib.loads(file.read_text()))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"{file}: {error}") from None

    def error(self, key: str, reason: str) -> UsageError:
        return UsageError(f"{self.file}: {self.path}{key}: {reason}")

    def take(self, key: str, kind: type, default=MISSING):
        """The value of a key, which must be of that type."""
        self.known.add(key)
        value = self.data.get(key, default)
        if value is MISSING and (typo := misspelt(key, self.data)):
            raise self.error(typo, f"is unknown; did you mean {key}?")
        if value is MISSING:
            raise self.error(key, f"is missing; it must be {NAMES[kind]}")
        if value is not default and type(value) is not kind:
            raise self.error(key, f"must be {NAMES[kind]}, not {value!r}")
        return self.plain(key, value)

    def plain(self, key: str, value):
        """No program's argument can hold a NUL."""
        if type(value) is str and "\0" in value:
            raise self.error(key, "holds a NUL")
        return value

    def text(self, key: str, default=MISSING) -> str:
        return self.take(key, str, default)

    def flag(self, key: str) -> bool:
        return self.take(key, bool, False)

    def count(self, key: str, default=MISSING) -> int:
        value = self.take(key, int, default)
        if value < 1:
            raise self.error(key, f"must be 1 or more, not {value}")
        return value

    def choice(self, key: str, choices, default=MISSING) -> str:
        value = self.text(key, default)
        if value is not default and value not in choices:
            raise self.error(key, f"{value!r} is none of them{nearest(value, choices)}")
        return value

    def size(self, key: str) -> int:
        return self.as_size(key, self.text(key))

    def sizes(self, key: str) -> list[int]:
        return [self.as_size(key, each) for each in self.texts(key)]

    def as_size(self, key: str, text: str) -> int:
        try:
            return parse_size(text)
        except ValueError as error:
            raise self.error(key, str(error)) from None

    def list_of(self, key: str, kind: type, default=MISSING) -> list:
        values = self.take(key, list, default)
        for value in values:
            if type(value) is not kind:
                raise self.error(key, f"must be a list of which each is {NAMES[kind]}, not {value!r}")
        return [self.plain(key, value) for value in values]

    def texts(self, key: str, default=MISSING) -> list[str]:
        return self.list_of(key, str, default)

    def environment(self, key: str) -> dict[str, str]:
        values = self.take(key, dict, {})
        for name, value in values.items():
            if type(value) is not str:
                raise self.error(f"{key}.{name}", f"must be {NAMES[str]}, not {value!r}")
        return dict(values)

    def table(self, key: str) -> "Table | None":
        value = self.take(key, dict, None)
        return None if value is None else Table(self.file, f"{self.path}{key}.", value)

    def tables(self) -> list[tuple[str, "Table"]]:
        """The tables in this one, whatever their names."""
        names = [name for name in self.data if name not in self.known]
        return [(name, self.table(name)) for name in names]

    def finish(self):
        for key in self.data:
            if key not in self.known:
                raise self.error(key, f"is unknown{nearest(key, self.known)}")


def misspelt(key: str, data: dict) -> str | None:
    """The key that stands there in place of the one that is missing."""
    close = difflib.get_close_matches(key, data, n=1, cutoff=0.75)
    return close[0] if close else None


NAMES = {str: "a text", int: "a whole number", bool: "true or false", list: "a list", dict: "a table"}
