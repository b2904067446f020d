"""Many small objects: one request each, in order or as they come, with bounded memory."""

import collections
import itertools
import threading

import pytest

import flatout

COUNT = 1000


@pytest.fixture(scope="module")
def small(started):
    origin = started("--synthetic", f"many/file-%04d=1KiB*{COUNT}", "--synthetic", "large/object=32MiB", "--no-auth")
    with flatout.Client(no_sign_request=True, **origin.settings) as client:
        yield origin, client, [f"s3://many/file-{number:04d}" for number in range(COUNT)]


@pytest.fixture(scope="module")
def large(started):
    return started("--synthetic", "data/file-%02d=32MiB*16", "--no-auth")


def asked(origin, before):
    return collections.Counter((each["method"], each["key"]) for each in origin.requests()[before:])


@pytest.mark.parametrize("ordered", [True, False])
def test_a_thousand_small_objects_are_a_thousand_requests(small, ordered):
    origin, client, urls = small
    before = len(origin.requests())
    got = dict(client.read_many(urls, ordered=ordered))
    assert asked(origin, before) == {("GET", f"file-{number:04d}"): 1 for number in range(COUNT)}
    for number in range(0, COUNT, 97):
        assert got[number] == client.read(urls[number])


def test_they_come_in_the_order_asked_for(small):
    _, client, urls = small
    assert [index for index, _ in client.read_many(urls[::-1])] == list(range(COUNT))


def test_entries_of_a_listing_and_ranges_may_be_read(small):
    origin, client, urls = small
    listed = client.ls("s3://many/")[:3] + client.ls("s3://large/")
    before = len(origin.requests())
    got = [buffer for _, buffer in client.read_many([*listed, (urls[0], 10, 20), (urls[0], -5, None), (urls[0], 3, 3)])]
    whole = client.read(urls[0])
    assert [len(buffer) for buffer in got] == [1024] * 3 + [32 << 20, 10, 5, 0]
    assert got[4] == bytes(whole)[10:20] and got[5] == bytes(whole)[-5:]
    # What is known to be large comes in parts.
    assert asked(origin, before)["GET", "object"] > 4


def test_what_fails_is_raised_or_handed_on(small):
    _, client, urls = small
    wanted = [urls[0], "s3://many/nothing", "nonsense", urls[1]]
    got = [result for _, result in client.read_many(wanted, return_exceptions=True)]
    assert [type(result) for result in got] == [flatout.Buffer, flatout.NotFound, flatout.UsageError, flatout.Buffer]
    reading = client.read_many(wanted)
    assert next(reading)[0] == 0
    with pytest.raises(FileNotFoundError):
        next(reading)
    assert list(reading) == []
    with pytest.raises(TypeError, match="an object to read is a URL"):
        list(client.read_many([5]))


def test_no_more_is_begun_than_is_taken(small):
    origin, client, urls = small
    taken = itertools.count()
    wanted = (url for url in urls if next(taken) is not None)
    before = len(origin.requests())
    reading = client.read_many(wanted, concurrency=5)
    assert [next(reading)[0] for _ in range(10)] == list(range(10))
    assert next(taken) <= 15 and len(origin.requests()) - before <= 15
    reading.close()
    assert list(reading) == []
    with pytest.raises(flatout.UsageError, match="concurrency"):
        client.read_many(urls, concurrency=0)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("wanted", ["url", "(url, 5, None)", "(url, 0, 1 << 40)", "client.stat(url)"])
def test_what_waits_to_be_taken_is_bounded_by_memory(large, python, ordered, wanted):
    """Whatever the origin tells of sizes only when it is asked; 16 of 32 MiB are 512."""
    python(
        """
import re, sys, time
import flatout
client = flatout.Client(endpoint_url=sys.argv[1], no_sign_request=True, memory="64MiB")
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) << 10
url = "s3://data/file-00"
whole = bytes(client.read(url))
wanted = [eval(sys.argv[2]) for url in (f"s3://data/file-{number:02d}" for number in range(16))]
before, progress = peak(), flatout.Progress()
reading = client.read_many(wanted, ordered=sys.argv[3] == "True", progress=progress)
got = [next(reading)[0]]
time.sleep(1)
for index, buffer in reading:
    got.append(index)
    assert index or buffer == whole[-len(buffer):]
    length = len(buffer)
    del buffer
assert sorted(got) == list(range(16)) and progress.done == progress.total == 16 * length, progress
assert peak() - before < 200 << 20, (peak() - before) >> 20
""",
        large.url,
        wanted,
        ordered,
    )


def test_progress_of_many(small):
    _, client, urls = small
    for count in (50, COUNT):
        progress = flatout.Progress()
        assert len(list(client.read_many(urls[:count], progress=progress))) == count
        assert (progress.done, progress.total, progress.is_over) == (count * 1024, count * 1024, True)


def test_what_a_loop_raises_stays_what_it_is(small):
    """The iterator goes while the exception is on its way, and takes its bar along."""
    _, client, urls = small
    with pytest.raises(ZeroDivisionError):
        for index, _ in client.read_many(urls, progress=True):
            index // 0


def test_one_thread_takes_them(client, bucket):
    url = bucket.put("key", b"123")
    objects, ends = client.read_many([url] * 200), []

    def take():
        try:
            ends.append(sum(1 for _ in objects))
        except flatout.UsageError as error:
            ends.append(error)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Who came in between is told what to do.
    assert len(ends) == 4 and all("another thread" in str(end) for end in ends if not isinstance(end, int))
