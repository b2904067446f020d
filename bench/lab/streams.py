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


class Drain:
    """A process that reads a pipe of 1 MiB and drops what comes. Its CPU is its own."""

    def __init__(self, argv: list[str]):
        output, self.input = os.pipe()
        try:
            fcntl.fcntl(self.input, F_SETPIPE_SZ, PIPE_BYTES)
            self.process = subprocess.Popen(
                argv, stdin=output, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except BaseException:
            self.close_input()
            raise
        finally:
            os.close(output)
        self.pid = self.process.pid

    def close_input(self):
        """Once the client holds it, the lab must not."""
        if self.input >= 0:
            os.close(self.input)
            self.input = -1

    def end(self):
        """The client is gone, so what is left in the pipe is soon read."""
        self.close_input()
        wait_or_kill(self.process)


class Feed:
    """A process that writes a file into a pipe of 1 MiB, as `cat FILE |` does in a shell. Its CPU is its own."""

    def __init__(self, path: str):
        self.output, end = os.pipe()
        try:
            fcntl.fcntl(end, F_SETPIPE_SZ, PIPE_BYTES)
            self.process = subprocess.Popen(
                ["cat", path], stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except BaseException:
            self.close_output()
            raise
        finally:
            os.close(end)
        self.pid = self.process.pid

    def close_output(self):
        """Once the client holds it, the lab must not: who feeds a client that has gone ends by the signal."""
        if self.output >= 0:
            os.close(self.output)
            self.output = -1

    def end(self):
        """The client is gone, and with it the last reader."""
        self.close_output()
        wait_or_kill(self.process)


def wait_or_kill(process: subprocess.Popen):
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
