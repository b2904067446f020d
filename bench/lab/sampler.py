"""What is read while a client runs: the bytes that cross loopback, every 20 ms, and the memory of its processes, every 40 ms.

Cost, measured by `python3 bench/lab/sampler.py`: see bench/README.md.
"""

import os
import time

from tree import Memory, Tree

COUNTER = "/sys/class/net/lo/statistics/rx_bytes"
COUNTER_EVERY_S = 0.020
MEMORY_EVERY_S = 0.040
# Sooner at first, for clients that are gone by then.
MEMORY_FIRST_S = 0.005
PEAK_WINDOW_S = 0.100


class Loopback:
    """The kernel's count of bytes received on loopback: bodies, heads and acknowledgements of whoever talks there."""

    def __init__(self):
        self.file = os.open(COUNTER, os.O_RDONLY | os.O_CLOEXEC)

    def bytes(self) -> int:
        return int(os.pread(self.file, 32, 0))

    def close(self):
        os.close(self.file)


class Sampler:
    """Called between other things: `due` says when the next reading is."""

    def __init__(self, tree: Tree, loopback: Loopback):
        self.tree, self.loopback = tree, loopback
        self.samples: list[tuple[float, int]] = []
        self.memory = Memory(0, 0)
        self.start()

    def start(self):
        """The clock that the samples are about starts now."""
        now = time.perf_counter()
        self.samples = [(now, self.loopback.bytes())]
        self.started = now
        self.counter_due, self.memory_due = now + COUNTER_EVERY_S, now + MEMORY_FIRST_S

    @property
    def due(self) -> float:
        return min(self.counter_due, self.memory_due)

    def sample(self, now: float):
        if now >= self.counter_due:
            self.samples.append((now, self.loopback.bytes()))
            self.counter_due = now + COUNTER_EVERY_S
        # Both at once where it is nearly time: waking up costs about as much as reading.
        if now >= self.memory_due - COUNTER_EVERY_S / 10:
            self.sample_memory()
            self.memory_due = now + min(MEMORY_EVERY_S, max(MEMORY_FIRST_S, now - self.started))

    def sample_memory(self):
        found = self.tree.memory()
        self.memory = Memory(found.now, max(self.memory.peak, found.peak))

    def stop(self, now: float):
        self.samples.append((now, self.loopback.bytes()))

    @property
    def fetched(self) -> int:
        return self.samples[-1][1] - self.samples[0][1]


def peak_rate(samples: list[tuple[float, int]]) -> float:
    """Bytes a second in the best window of 100 ms or just over; of everything where there is no window so long."""
    best = None
    first = 0
    for time_, count in samples:
        while first + 1 < len(samples) and time_ - samples[first + 1][0] >= PEAK_WINDOW_S:
            first += 1
        seconds = time_ - samples[first][0]
        if seconds >= PEAK_WINDOW_S:
            best = max(best or 0.0, (count - samples[first][1]) / seconds)
    if best is not None:
        return best
    seconds = samples[-1][0] - samples[0][0]
    return (samples[-1][1] - samples[0][1]) / seconds if seconds > 0 else 0.0


def cost(seconds: float = 2.0) -> dict[str, float]:
    """CPU seconds a second of sampling beside one busy process, and microseconds a reading."""
    import subprocess

    child = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    sampler = Sampler(Tree(set()), Loopback())
    cpu, end = time.process_time(), time.perf_counter() + seconds
    while (now := time.perf_counter()) < end:
        sampler.sample(now)
        time.sleep(max(0.0, sampler.due - time.perf_counter()))
    share = (time.process_time() - cpu) / seconds
    counter = each(sampler.loopback.bytes)
    memory = each(sampler.sample_memory)
    child.kill()
    child.wait()
    return {"share_of_a_core": share, "counter_us": counter, "memory_us": memory}


def each(call, times: int = 500) -> float:
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times * 1e6


if __name__ == "__main__":
    print(cost())
