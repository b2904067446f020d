"""Replaces objects under handles of every kind, opens the new versions in every order, and reads by all of them all the while.

Says what no reader may meet, line by line: a byte of another version, a size of another, a file that is short; nothing where
all is well. Arguments: the folder of a mount, that of its bucket, and whether an open sees the newest version at once.
"""

import errno, itertools, mmap, os, sys

MNT, BUCKET, AT_ONCE = sys.argv[1], sys.argv[2], sys.argv[3] == "at-once"
PIECE = 16 << 10
# Of no whole number of pages: then shorter, then longer.
SIZES = {"A": (1 << 20) + 50_000, "B": (1 << 20) - 50_000, "C": (1 << 20) + 90_000}
sink = os.memfd_create("sink")


class Gone(Exception):
    """Its version is gone: ESTALE, or a page that cannot be had."""


class Way:
    """A handle, and how it is read by."""

    flags = 0

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY | self.flags)
        self.letter = None

    def __str__(self):
        return f"{type(self).__name__} of {self.letter}"

    def read(self, at, count):
        return os.pread(self.fd, count, at)

    def close(self):
        os.close(self.fd)


class Buffered(Way):
    pass


class Direct(Way):
    flags = os.O_DIRECT

    def read(self, at, count):
        with mmap.mmap(-1, count) as aligned:
            return aligned[: os.preadv(self.fd, [aligned], at)]


class Sent(Way):
    """By sendfile(2), which takes pages from the cache without a copy."""

    def read(self, at, count):
        os.ftruncate(sink, 0)
        os.lseek(sink, 0, os.SEEK_SET)
        sent = 0
        while sent < count and (n := os.sendfile(sink, self.fd, at + sent, count - sent)):
            sent += n
        return os.pread(sink, sent, 0)


class Mapped(Way):
    def __init__(self, path):
        super().__init__(path)
        try:
            self.map = mmap.mmap(self.fd, 0, prot=mmap.PROT_READ)
        except OSError as error:
            self.close()
            raise Gone from error

    def read(self, at, count):
        # The kernel reads the map for us: EFAULT instead of SIGBUS where a page cannot be had.
        os.ftruncate(sink, 0)
        with memoryview(self.map) as whole, whole[at : at + count] as part:
            return os.pread(sink, os.pwrite(sink, part, 0), 0)


WAYS = [Buffered, Direct, Mapped, Sent]


def say(*what):
    print(*what, flush=True)


def put(key, letter):
    beside = os.path.join(os.path.dirname(BUCKET), "beside")
    with open(beside, "wb") as file:
        file.write(letter.encode() * SIZES[letter])
    os.rename(beside, os.path.join(BUCKET, key))


def is_gone(error):
    return isinstance(error, Gone) or error.errno in (errno.ESTALE, errno.EFAULT)


def whole(handle, where):
    """Reads here and there, going on after errors; whether all of it was to be had."""
    all_there = True
    size = SIZES.get(handle.letter, min(SIZES.values()))
    for at in (size - PIECE // 2, 0, 3 * 4096, size // 2, size - PIECE - 1, 0):
        try:
            found = handle.read(at, PIECE)
        except (OSError, Gone) as error:
            if not is_gone(error):
                say(where, handle, "at", at, error)
            all_there = False
            continue
        if handle.letter is None and found:
            handle.letter = chr(found[0])
            return whole(handle, where)
        if found.count(handle.letter.encode()) != len(found):
            say(where, handle, "at", at, "reads", set(found.decode()))
        # A map reads what it can of the range before the page that is gone.
        if len(found) != min(PIECE, size - at) and not isinstance(handle, Mapped):
            say(where, handle, "at", at, "has", len(found), "bytes")
    try:
        if handle.letter and os.fstat(handle.fd).st_size != size:
            say(where, handle, "has the size", os.fstat(handle.fd).st_size)
    except OSError as error:
        if error.errno != errno.ESTALE:
            say(where, handle, "fstat", error)
    return all_there


def opened(way, path, letter, where):
    """A handle on the version of now, or on an older one where what is known may be that old; whoever reads what is gone of
    such a one finds that out."""
    for _ in range(1 if AT_ONCE else 8):
        try:
            handle = way(path)
        except (OSError, Gone) as error:
            if AT_ONCE or not is_gone(error):
                say(where, "open", way.__name__, error)
            continue
        if whole(handle, where) and (handle.letter == letter or not AT_ONCE):
            return handle
        if AT_ONCE:
            say(where, handle, "is not", letter, "whole")
        handle.close()
    say(where, way.__name__, "had no version whole")


for order in itertools.permutations(WAYS):
    key = "-".join(way.__name__ for way in order)
    path = os.path.join(MNT, key)
    put(key, "A")
    handles, numbers = [], set()
    for letter in SIZES:
        if letter != "A":
            put(key, letter)
        for way in order:
            where = f"{key}: {letter} by {way.__name__}:"
            handles.append(opened(way, path, letter, where))
            handles = [handle for handle in handles if handle]
            for handle in handles:
                whole(handle, where)
        numbers.add(os.stat(path).st_ino)
    if len(numbers) != 1:
        say(key, "has many numbers:", numbers)
    for handle in handles:
        handle.close()
        if isinstance(handle, Mapped):
            handle.map.close()
