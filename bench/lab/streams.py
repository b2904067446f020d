"""The pipes between the lab and a client. What comes through them is bounded, however much a client says."""

import fcntl
import os
import subprocess

F_SETPIPE_SZ = 1031
PIPE_BYTES = 1 << 20
TAIL_BYTES = 64 << 10


class Tail:
    """The last words of a stream."""

    def __init__(self):
        self.kept = b""

    def take(self, data: bytes):
        self.kept = (self.kept + data)[-TAIL_BYTES:]

    def last_line(self) -> str:
        # A progress bar goes back to the line's start; what it showed last is what counts.
        lines = self.kept.decode(errors="replace").replace("\r", "\n").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Lines:
    """A stream line by line. A line without end is cut, so that it is seen to be none of ours."""

    def __init__(self):
        self.whole: list[str] = []
        self.rest = b""

    def take(self, data: bytes):
        if len(self.whole) > 100:
            return
        *whole, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > TAIL_BYTES:
            whole, self.rest = [*whole, self.rest], b""
        self.whole += [line.decode(errors="replace").strip() for line in whole[:100]]

    def next(self) -> str:
        return self.whole.pop(0)


class Beside:
    """A process at the other end of a pipe of 1 MiB that a client reads or writes. Its CPU is its own."""

    def __init__(self, argv: list[str], reads: bool):
        output, input = os.pipe()
        self.pipe, its = (input, output) if reads else (output, input)
        try:
            fcntl.fcntl(input, F_SETPIPE_SZ, PIPE_BYTES)
            ends = {"stdin": its, "stdout": subprocess.DEVNULL} if reads else {"stdin": subprocess.DEVNULL, "stdout": its}
            self.process = subprocess.Popen(argv, **ends, stderr=subprocess.DEVNULL, start_new_session=True)
        except BaseException:
            self.close_pipe()
            raise
        finally:
            os.close(its)
        self.pid = self.process.pid

    def close_pipe(self):
        """Once the client holds it, the lab must not: else it would not see the client's end."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1

    def end(self):
        """The client is gone: what is left in the pipe is soon read, or nobody is left to read it."""
        self.close_pipe()
        wait_or_kill(self.process)


def drain(argv: list[str]) -> Beside:
    """Reads what a client writes, and drops it."""
    return Beside(argv, reads=True)


def feed(path: str) -> Beside:
    """Writes a file to a client, as `cat FILE |` does in a shell."""
    return Beside(["cat", path], reads=False)


def wait_or_kill(process: subprocess.Popen):
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
