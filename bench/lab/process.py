"""One run of one client: started, watched, measured, and gone with everything that it started, whatever it does.

A command is measured from its start to its exit. A program that talks is measured from `go` to `done`:

    program: ready          everything that a process makes once is made
    lab:     go             the clocks were read
    program: done BYTES     or: failed REASON; it stays until its input ends, as who has gone has no clock

One that reads in a mount says `ready PID`: only that process, with what it starts, is the client. It may say `done BYTES
SECONDS`, by the clock of what read (fio's, without the time that fio takes to begin).
"""

import contextlib
import hashlib
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import streams
from machine import busy_seconds
from sampler import Loopback, Sampler, peak_rate
from sizes import rounded
from streams import Lines, Tail
from tree import Memory, Reaped, Stuck, Tree, clock_of, cpu_since, memory_of

# How long a program that talks may take to end after `done`.
FAREWELL_S = 10.0
# The kernel counts resident pages in batches.
SLACK_BYTES = 4 << 20
REASON_CHARACTERS = 300
SHM = "/dev/shm"
# Who fills it to here fails; a full one would fail the origins and the lab.
SHM_KEPT_BYTES = 16 << 20


class RunFailed(Exception):
    """Why this run counts for nothing: what the page shows."""


@dataclass(frozen=True)
class Limits:
    seconds: float
    memory_bytes: int
    # The largest file that a client may write.
    file_bytes: int = resource.RLIM_INFINITY


@dataclass(frozen=True)
class Client:
    """What is started. `stdout` is one of: keep (its last words), drop, drain (a pipe that is emptied), hash (for the check).
    `stdin` is a file that comes to it through a pipe."""

    argv: list[str]
    env: dict[str, str]
    folder: str
    talks: bool = False
    stdout: str = "keep"
    stdin: str | None = None


@dataclass(frozen=True)
class Surroundings:
    """What a run needs beside the client."""

    limits: Limits
    origin_pids: list[int]
    loopback: Loopback
    # The program that empties a pipe.
    drain: list[str]
    # How many requests the origin has answered, where it says so.
    requests: Callable[[], int | None] = lambda: None


@dataclass(frozen=True)
class Measured:
    seconds: float
    cpu_seconds: float
    peak_rss: int
    origin_cpu_seconds: float
    fetched_bytes: int
    peak_bytes_per_s: float
    # Of what fills or empties the client's pipe, or reads in its mount.
    drain_cpu_seconds: float = 0.0
    # Of whoever else was at work on this machine, or on its host.
    foreign_cpu_seconds: float = 0.0
    # What a program that talks says it delivered.
    said_bytes: int | None = None
    # Of a program that talks, where the origin counts.
    requests: int | None = None
    # Of standard output, where it was to be hashed.
    stdout_bytes: int | None = None
    stdout_sha256: str | None = None


def run(client: Client, around: Surroundings) -> Measured:
    """Raises RunFailed. Nothing of the client lives when it returns, but what no signal ends: that is a failure too."""
    process = Process(client, around)
    try:
        process.start()
        measured = process.talk() if client.talks else process.last()
    except RunFailed as error:
        process.end()
        if process.stuck:
            raise RunFailed(f"{error}; then {process.stuck}") from None
        raise
    finally:
        process.end()
    if process.stuck:
        raise RunFailed(process.stuck)
    return measured


class Process:
    """A client that runs, and the loop that waits for it."""

    def __init__(self, client: Client, around: Surroundings):
        self.client, self.around = client, around
        self.drain = streams.drain(around.drain) if client.stdout == "drain" else None
        self.feed = streams.feed(client.stdin) if client.stdin else None
        self.beside = [each.pid for each in (self.drain, self.feed) if each]
        self.tree = Tree({*around.origin_pids, *self.beside})
        self.sampler = Sampler(self.tree, around.loopback)
        self.poll = select.poll()
        self.readers: dict = {}
        self.errors, self.words, self.lines = Tail(), Tail(), Lines()
        self.digest, self.digested = hashlib.sha256(), 0
        self.child: subprocess.Popen | None = None
        self.exit_fd = -1
        self.status: int | None = None
        self.left = Reaped()
        self.lab_peak = 0
        self.ended = False
        # What of it no signal ended.
        self.stuck: str | None = None

    def start(self):
        stdout = {"drop": subprocess.DEVNULL, "drain": self.drain and self.drain.pipe}
        self.begin()
        most, (soft, hard) = self.around.limits.file_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            # The child inherits it: after the start it may have written already.
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
            self.child = subprocess.Popen(
                self.client.argv,
                env=self.client.env,
                cwd=self.client.folder,
                stdin=self.stdin(),
                stdout=stdout.get(self.client.stdout, subprocess.PIPE),
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise RunFailed(f"cannot start {self.client.argv[0]}: {error.strerror}") from None
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        # A child counts the memory of the process that it was forked from as its own (setmax_mm_hiwater_rss): what that is now
        # is no less.
        self.lab_peak = memory_of(os.getpid())[1]
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.child.pid, resource.RLIMIT_FSIZE, (most, most))
        for each in (self.drain, self.feed):
            if each:
                each.close_pipe()
        self.exit_fd = os.pidfd_open(self.child.pid)
        self.poll.register(self.exit_fd, select.POLLIN)
        self.read_from(self.child.stderr, self.errors.take)
        if self.child.stdout:
            self.read_from(self.child.stdout, self.on_stdout())

    def stdin(self) -> int:
        if self.feed:
            return self.feed.pipe
        return subprocess.PIPE if self.client.talks else subprocess.DEVNULL

    def on_stdout(self):
        if self.client.talks:
            return self.lines.take
        return self.hash if self.client.stdout == "hash" else self.words.take

    def hash(self, data: bytes):
        self.digest.update(data)
        self.digested += len(data)

    def read_from(self, pipe, take):
        os.set_blocking(pipe.fileno(), False)
        self.readers[pipe.fileno()] = take
        self.poll.register(pipe.fileno(), select.POLLIN)

    def begin(self):
        """The clocks start, and the limit of time with them."""
        self.origin_cpu, self.drain_cpu = self.origins(), self.drains()
        self.busy, self.lab_cpu = busy_seconds(), time.process_time()
        self.sampler.start()
        self.started = time.perf_counter()
        self.limit(self.around.limits.seconds)

    def limit(self, seconds: float):
        self.limit_s = seconds
        self.deadline = time.perf_counter() + seconds

    def last(self) -> Measured:
        """Of a command: waits for its exit."""
        self.wait_for(lambda: self.status is not None, "it ran")
        seconds, origin_cpu = self.stop_clocks()
        self.end()
        if self.status != 0:
            raise RunFailed(self.why_it_ended())
        return self.measured(seconds, origin_cpu, self.left.cpu_seconds, self.peak_rss())

    def peak_rss(self) -> int:
        """The kernel's figure holds up to the exit. It is the lab's own where that was larger: then only a bound, for
        who was gone before anybody looked."""
        sampled, of_kernel = self.sampler.memory.peak, self.left.peak_rss
        exact = of_kernel > self.lab_peak + SLACK_BYTES
        return max(sampled, of_kernel) if exact else sampled or of_kernel

    def talk(self) -> Measured:
        """Of a program that talks: until it says that it is done, and then ends well."""
        client = self.expect("ready")
        if client:
            self.tree.client, self.sampler.memory = number(client, "ready"), Memory(0, 0)
        requests = self.around.requests()
        cpu, readers = self.tree.cpu(), self.tree.cpu(clients=False)
        self.begin()
        self.tell(b"go\n")
        said = self.expect("done")
        seconds, origin_cpu = self.stop_clocks()
        cpu_seconds = cpu_since(cpu, self.tree.cpu())
        if self.tree.client:
            self.drain_cpu += cpu_since(readers, self.tree.cpu(clients=False))
        self.sampler.sample_memory()
        answered = self.around.requests()
        delivered, _, own = said.partition(" ")
        delivered, seconds = number(delivered, "done"), duration(own) if own else seconds
        self.child.stdin.close()
        self.limit(FAREWELL_S)
        self.wait_for(lambda: self.status is not None, "after done, it went on")
        if self.status != 0:
            raise RunFailed(f"after done: {self.why_it_ended()}")
        requests = None if answered is None or requests is None else answered - requests
        return self.measured(seconds, origin_cpu, cpu_seconds, self.sampler.memory.peak, delivered, requests)

    def stop_clocks(self) -> tuple[float, float]:
        now = time.perf_counter()
        self.sampler.stop(now)
        self.drain_cpu = self.drains() - self.drain_cpu
        self.busy, self.lab_cpu = busy_seconds() - self.busy, time.process_time() - self.lab_cpu
        return now - self.started, self.origins() - self.origin_cpu

    def origins(self) -> float:
        return sum(map(clock_of, self.around.origin_pids))

    def drains(self) -> float:
        return sum(map(clock_of, self.beside), 0.0)

    def measured(self, seconds, origin_cpu, cpu_seconds, peak_rss, said=None, requests=None) -> Measured:
        hashed = self.client.stdout == "hash"
        return Measured(
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            peak_rss=peak_rss,
            origin_cpu_seconds=origin_cpu,
            fetched_bytes=self.sampler.fetched,
            peak_bytes_per_s=peak_rate(self.sampler.samples),
            drain_cpu_seconds=self.drain_cpu,
            # Counted in ticks of 10 ms on each core, so that nothing can come out as less.
            foreign_cpu_seconds=max(0.0, self.busy - cpu_seconds - origin_cpu - self.drain_cpu - self.lab_cpu),
            said_bytes=said,
            requests=requests,
            stdout_bytes=self.digested if hashed else None,
            stdout_sha256=self.digest.hexdigest() if hashed else None,
        )

    def tell(self, words: bytes):
        try:
            self.child.stdin.write(words)
        except BrokenPipeError:
            pass  # It has ended, and the next wait says how.

    def expect(self, word: str) -> str:
        """What follows the word in the line that must come now."""
        self.wait_for(lambda: self.lines.whole or self.status is not None, f"it did not say {word}")
        if not self.lines.whole:
            raise RunFailed(f"{self.why_it_ended()} (it had not said {word})")
        line = self.lines.next()
        first, _, rest = line.partition(" ")
        if first == "failed":
            raise RunFailed(shortened(rest or "it said failed, and not why"))
        if first != word:
            raise RunFailed(f"it said {shortened(line)!r} where {word} was due")
        return rest

    def wait_for(self, event, doing: str):
        """Turns until the event; the limits of time and memory end it earlier."""
        while not event():
            now = time.perf_counter()
            if now >= self.deadline:
                raise RunFailed(self.with_words(f"{doing} for {self.limit_s:g} s, which is the limit: killed"))
            for fd, _ in self.poll.poll(max(0.0, min(self.sampler.due, self.deadline) - now) * 1000):
                self.on_ready(fd)
            now = time.perf_counter()
            if now >= self.sampler.due:
                self.sampler.sample(now)
                self.check_memory()

    def on_ready(self, fd: int):
        if fd == self.exit_fd:
            # The moment that counts comes first; then what it still had to say.
            self.poll.unregister(fd)
            self.reap()
            for each in list(self.readers):
                self.read_all(each)
        else:
            self.read_once(fd)

    def read_once(self, fd: int) -> bool:
        if fd not in self.readers:
            return False
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return False
        if data:
            self.readers[fd](data)
            return True
        self.poll.unregister(fd)
        del self.readers[fd]
        return False

    def read_all(self, fd: int):
        """What is in the pipe now: an orphan may hold it open, and write for ever."""
        deadline = time.perf_counter() + 1.0
        while self.read_once(fd) and time.perf_counter() < deadline:
            pass

    def reap(self):
        _, status, usage = os.wait4(self.child.pid, 0)
        self.status = self.child.returncode = os.waitstatus_to_exitcode(status)
        self.left = self.left.plus(usage)

    def check_memory(self):
        limit = self.around.limits.memory_bytes
        if self.sampler.memory.now > limit:
            raise RunFailed(f"took {rounded(self.sampler.memory.now)} of memory, over the limit of {rounded(limit)}: killed")

        space = os.statvfs(SHM)
        if space.f_bavail * space.f_frsize < SHM_KEPT_BYTES:
            raise RunFailed(f"left less than {rounded(SHM_KEPT_BYTES)} free in {SHM}: killed")

    def why_it_ended(self) -> str:
        how = f"exit status {self.status}" if self.status >= 0 else f"ended by {signal_name(-self.status)}"
        return self.with_words(how)

    def with_words(self, how: str) -> str:
        words = self.errors.last_line() or self.words.last_line()
        return f"{how}: {shortened(words)}" if words else how

    def end(self):
        """Nothing of it is left. A second call finds nothing to do."""
        if self.ended:
            return
        self.ended = True
        try:
            self.kill()
        except Stuck as error:
            self.stuck = str(error)
        finally:
            self.close()

    def kill(self):
        killed = self.tree.kill()
        peak = max(self.left.peak_rss, killed.peak_rss)
        self.left = Reaped(self.left.cpu_seconds + killed.cpu_seconds, peak)
        if self.child and self.child.returncode is None:
            self.child.returncode = -9  # Reaped above: nobody else is to wait for it.

    def close(self):
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr) if self.child else ():
            if pipe and not pipe.closed:
                pipe.close()
        if self.exit_fd >= 0:
            os.close(self.exit_fd)
        for each in (self.drain, self.feed):
            if each:
                each.end()


def number(text: str, word: str) -> int:
    if not text.isdigit():
        raise RunFailed(f"it said '{word} {shortened(text)}' where a number was due")
    return int(text)


def duration(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise RunFailed(f"it said that it took {shortened(text)!r} where seconds were due")
    return seconds


def shortened(text: str) -> str:
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 1] + "…"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
