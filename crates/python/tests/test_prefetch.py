"""What was said to be read later comes from where it lies in what was fetched."""

import signal

import numpy
import pytest

MIB = 1 << 20


def test_a_read_far_into_what_was_prefetched(client, bucket):
    data = numpy.arange(30 * MIB // 4, dtype=numpy.uint32).tobytes()
    with client.open(bucket.put("key", data)) as file:
        file.prefetch([(0, 30 * MIB)])
        for at in (9 * MIB, 10 * MIB + 3, 17 * MIB, 25 * MIB, 16 * MIB - 500, 24 * MIB):
            assert bytes(file.pread(at, 1000)) == data[at : at + 1000], at
            assert file.seek(at) == at and file.read(1000) == data[at : at + 1000]
            into = bytearray(1000)
            assert file.readinto(into) == 1000 and into == data[at + 1000 : at + 2000]


def test_a_signal_ends_a_call_of_many_short_waits(client, bucket):
    """Each of them is over before anybody would look at signals by the clock."""
    url = bucket.put("key", bytes(20_000 * 2))
    ranges = [(2 * n, 2 * n + 1) for n in range(20_000)]

    def stop(*_):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        # Nobody answers 20,000 requests so soon.
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(InterruptedError):
            client.read_ranges(url, ranges, max_gap=0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
