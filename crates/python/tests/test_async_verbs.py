"""The rest of the client's verbs for asyncio: each as the client's own, and no thread that waits for a transfer."""

import asyncio
import gc
import os
import socket
import threading
import time

import numpy
import pytest

import flatout
import origins
import tasks

SIZE = 3_000_000
COUNT = 300


@pytest.fixture(scope="module")
def data(content):
    return content(SIZE)


@pytest.fixture
def url(bucket, data):
    return bucket.put("key", data)


@pytest.fixture(scope="module")
def small(started):
    return started("--synthetic", f"many/file-%04d=1KiB*{COUNT}", "--synthetic", "large/file-%02d=32MiB*8", "--no-auth")


@pytest.fixture
def reader(small):
    return flatout.AsyncClient(no_sign_request=True, **small.settings)


URLS = [f"s3://many/file-{number:04d}" for number in range(COUNT)]


@pytest.fixture
def silent():
    """An origin that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_several_ranges(client, bucket, url, data):
    ranges = [(2_000_000, 2_000_100), (5, 10), (12, 30), (5, 5), (0, 1_500_000), (-7, None), (100, 120), (6, 9)]

    async def main():
        reader = flatout.AsyncClient(client)
        got = await reader.read_ranges(url, ranges)
        assert [bytes(buffer) for buffer in got] == [data[start:end] for start, end in ranges]
        assert got[0].info == got[1].info == client.stat(url) or got[0].info.etag == client.stat(url).etag
        out = [bytearray(5), numpy.zeros(18, numpy.uint8), bytearray(1_500_000)]
        assert await reader.read_ranges(url, [(5, 10), (12, 30), (0, 1_500_000)], out=out) == [5, 18, 1_500_000]
        assert [bytes(each) for each in out] == [data[5:10], data[12:30], data[:1_500_000]]
        assert await reader.read_ranges(url, []) == []
        # Behind the end there is nothing.
        behind = [(SIZE, SIZE + 5), (SIZE + 9, None), (0, 3)]
        assert [bytes(part) for part in await reader.read_ranges(url, behind)] == [b"", b"", data[:3]]
        empty = bucket.put("empty", b"")
        assert await reader.read_ranges(empty, [(0, 5)]) == await reader.read_ranges(empty, [(-5, None)]) == [b""]
        progress = flatout.Progress()
        await reader.read_ranges(url, [(0, 10), (1_000_000, 2_000_000)], progress=progress)
        assert progress.is_over and progress.done == progress.total == 1_000_010
        for out, said in (([bytearray(5)], "1 buffers for 2 ranges"), ([bytearray(5), bytearray(1)], "buffer 1 holds 1")):
            with pytest.raises(flatout.UsageError, match=said):
                await reader.read_ranges(url, [(0, 5), (5, 10)], out=out)
        shared = bytearray(10)
        with pytest.raises(flatout.UsageError, match="bytes in common"):
            await reader.read_ranges(url, [(0, 10), (20, 30)], out=[shared, shared])
        with pytest.raises(flatout.NotFound):
            await reader.read_ranges(url + "-not", [(0, 5), (2_000_000, 2_000_009)])

    asyncio.run(main())


def test_near_ranges_are_one_request(started, bucket_of, content):
    origin = started()
    url = bucket_of(origin).put("key", content(SIZE))
    reader = flatout.AsyncClient(**origin.settings)
    before = len(origin.requests())
    asyncio.run(reader.read_ranges(url, [(0, 10), (20, 30), (100, 200), (2_000_000, 2_000_010)]))
    assert [each["method"] for each in origin.requests()[before:]] == ["GET", "GET"]


def test_ranges_are_of_one_version(started):
    origin = started("--synthetic", "data/object=64MiB", "--no-auth", "--replace-after", "8")
    reader = flatout.AsyncClient(no_sign_request=True, **origin.settings)
    with pytest.raises(flatout.ObjectChanged):
        asyncio.run(reader.read_ranges("s3://data/object", [(at << 20, (at << 20) + 5) for at in range(0, 60, 4)]))


def test_ranges_that_are_cancelled_leave_their_buffers_alone(started):
    origin = started("--synthetic", "data/slow=256MiB", "--no-auth", "--total", "60MiB/s")
    reader = flatout.AsyncClient(no_sign_request=True, **origin.settings)
    buffers = [bytearray(64 << 20) for _ in range(4)]

    async def main():
        ranges = [(at * (64 << 20), (at + 1) * (64 << 20)) for at in range(4)]
        task = asyncio.create_task(reader.read_ranges("s3://data/slow", ranges, out=buffers))
        until = time.monotonic() + origins.PATIENCE_S
        while not any(buffer[0] or buffer[5] for buffer in buffers) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for buffer in buffers:
            buffer[:] = b"\x55" * len(buffer)
        assert (await reader.stat("s3://data/slow")).size == 256 << 20
        assert all(buffer.count(0x55) == len(buffer) for buffer in buffers)
        for buffer in buffers:
            # It is nobody's any more.
            buffer.append(0)

    asyncio.run(main())


@pytest.mark.parametrize("ordered", [True, False])
def test_many_objects(small, reader, ordered):
    async def main():
        got, order = {}, []
        async for index, buffer in reader.read_many(URLS, ordered=ordered, concurrency=20):
            got[index] = buffer
            order.append(index)
        return got, order

    before = len(small.requests())
    got, order = asyncio.run(main())
    asked = small.requests()[before:]
    assert len(asked) == COUNT and {each["method"] for each in asked} == {"GET"}
    assert sorted(order) == list(range(COUNT)) and (order == list(range(COUNT)) or not ordered)
    for number in range(0, COUNT, 37):
        assert got[number] == reader.client.read(URLS[number]) and got[number].info.size == 1024


def test_many_of_every_kind(reader):
    async def main():
        entries = (await reader.ls("s3://many/"))[:2] + (await reader.ls("s3://large/"))[:1]
        wanted = [*entries, "s3://large/file-01", (URLS[0], 10, 20), (URLS[0], -5, None), (URLS[0], 3, 3), (URLS[0], 5, -5)]
        return [buffer async for _, buffer in reader.read_many(wanted)]

    got = asyncio.run(main())
    assert [len(buffer) for buffer in got] == [1024, 1024, 32 << 20, 32 << 20, 10, 5, 0, 1014]
    assert got[3] == reader.client.read("s3://large/file-01") and got[5] == reader.client.read(URLS[0])[-5:]


def test_what_fails_is_raised_or_handed_on(reader):
    wanted = [URLS[0], "s3://many/nothing", "nonsense", URLS[1]]

    async def handed():
        return [result async for _, result in reader.read_many(wanted, return_exceptions=True)]

    async def raised():
        many = reader.read_many(wanted)
        assert (await anext(many))[0] == 0
        with pytest.raises(FileNotFoundError):
            await anext(many)
        assert [each async for each in many] == []
        with pytest.raises(TypeError, match=r"urls\[1\]: an object to read is a URL"):
            async for _ in reader.read_many([URLS[0], 5]):
                pass
        with pytest.raises(flatout.UsageError, match="concurrency is 0"):
            reader.read_many(URLS, concurrency=0)

    kinds = [type(result) for result in asyncio.run(handed())]
    assert kinds == [flatout.Buffer, flatout.NotFound, flatout.UsageError, flatout.Buffer]
    asyncio.run(raised())


def test_no_more_is_begun_than_is_taken(small, reader):
    taken = []

    async def main():
        wanted = (taken.append(url) or url for url in URLS)
        async with reader.read_many(wanted, concurrency=5) as many:
            for number in range(10):
                assert (await anext(many))[0] == number
            assert len(taken) <= 15
            with pytest.raises(flatout.UsageError, match="another task waits"):
                await asyncio.gather(anext(many), anext(many))
        assert [each async for each in many] == []

    asyncio.run(main())


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("wanted", ["url", "(url, 5, None)", "(url, 0, 1 << 40)", "client.stat(url)"])
def test_what_waits_to_be_taken_is_bounded_by_memory(started, python, ordered, wanted):
    large = started("--synthetic", "data/file-%02d=32MiB*16", "--no-auth")
    python(
        """
import asyncio, re, sys
import flatout
client = flatout.Client(endpoint_url=sys.argv[1], no_sign_request=True, memory="64MiB")
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) << 10
async def main():
    url = "s3://data/file-00"
    whole = bytes(client.read(url))
    wanted = [eval(sys.argv[2]) for url in (f"s3://data/file-{number:02d}" for number in range(16))]
    before, progress, got = peak(), flatout.Progress(), []
    async for index, buffer in flatout.AsyncClient(client).read_many(wanted, ordered=sys.argv[3] == "True", progress=progress):
        got.append(index)
        assert index or buffer == whole[-len(buffer):]
        length = len(buffer)
        del buffer
        if len(got) == 1:
            await asyncio.sleep(1)
    assert sorted(got) == list(range(16)) and progress.done == progress.total == 16 * length, progress
    assert peak() - before < 230 << 20, (peak() - before) >> 20
asyncio.run(main())
""",
        large.url,
        wanted,
        ordered,
    )


def test_files_are_downloaded(client, url, data, tmp_path):
    reader = flatout.AsyncClient(client)
    pairs = [(url, tmp_path / str(number)) for number in range(3)] + [(url + "-not", str(tmp_path / "no"))]
    progress = flatout.Progress()
    sizes = asyncio.run(reader.download_many(pairs, return_exceptions=True, progress=progress))
    assert sizes[:3] == [SIZE] * 3 and isinstance(sizes[3], FileNotFoundError) and progress.is_over
    assert all((tmp_path / str(number)).read_bytes() == data for number in range(3))
    with pytest.raises(FileNotFoundError):
        asyncio.run(reader.download_many(pairs))
    assert asyncio.run(reader.download_many([])) == []


def test_listings_pages_buckets_and_urls(reader, bucket, client, url, data):
    import urllib.request

    async def main():
        pages = [page async for page in reader.ls_pages("s3://many/", recursive=True)]
        assert [entry.url for page in pages for entry in page] == URLS
        with pytest.raises(flatout.NotFound):
            async for _ in reader.ls_pages("s3://nothing-there/"):
                pass
        assert bucket.name in await flatout.AsyncClient(client).buckets()
        return await flatout.AsyncClient(client).presign(url)

    assert urllib.request.urlopen(asyncio.run(main())).read() == data


def test_a_file(client, url, data):
    async def main():
        reader = flatout.AsyncClient(client)
        with pytest.raises(flatout.ObjectChanged):
            await reader.open(url, etag='"another"')
        with pytest.raises(NotImplementedError):
            await reader.open(url, "r")
        async with await reader.open(url) as file:
            assert (file.size, file.name, file.tell(), file.closed) == (SIZE, url, 0, False)
            assert await file.read(4) == data[:4] and await file.read(100_000) == data[4:100_004]
            assert file.seek(-5, os.SEEK_END) == SIZE - 5 and await file.read() == data[-5:] and await file.read(9) == b""
            into = bytearray(1000)
            assert file.seek(10) == 10 and await file.readinto(into) == 1000 and into == data[10:1010] and file.tell() == 1010
            starts = range(0, SIZE, SIZE // 50)
            got = await asyncio.gather(*(file.pread(start, 1000) for start in starts))
            assert [bytes(each) for each in got] == [data[start : start + 1000] for start in starts]
            assert await file.pread(SIZE, 5) == b"" and await file.pread(0) == data and await file.pread(5, 0) == b""
            assert await file.preadinto(SIZE - 5, into) == 5 and into[:5] == data[-5:]
            assert await file.preadinto(SIZE + 5, into) == 0
            with pytest.raises(ValueError, match="offset is -1"):
                await file.pread(-1, 5)
            with pytest.raises(BufferError):
                await file.preadinto(0, b"123")
            file.prefetch([(1_000_000, 1_100_000), (0, 1000)])
            assert await file.pread(1_000_000, 100_000) == data[1_000_000:1_100_000]
            assert await file.pread(10, 100) == data[10:110]
        assert file.closed
        with pytest.raises(ValueError, match="closed file"):
            await file.read(1)

    asyncio.run(main())


def test_a_file_that_is_replaced_says_so(client, bucket):
    url = bucket.put("key", b"1" * 100_000)

    async def main():
        file = await flatout.AsyncClient(client).open(url)
        bucket.put("key", b"2" * 100_000)
        with pytest.raises(flatout.ObjectChanged):
            await file.read(50_000)

    asyncio.run(main())


def test_a_long_read_of_a_file_is_one_transfer(started):
    origin = started("--synthetic", "data/large=160MiB", "--no-auth")
    reader = flatout.AsyncClient(no_sign_request=True, **origin.settings)

    async def main():
        file = await reader.open("s3://data/large")
        whole, part = await file.pread(0), bytearray(80 << 20)
        assert await file.preadinto(5, part) == len(part) and part == memoryview(whole)[5 : 5 + len(part)]
        assert memoryview(await file.read()) == memoryview(whole)

    asyncio.run(main())


def test_a_read_of_a_file_that_is_cancelled_gives_its_buffer_back(silent):
    reader = flatout.AsyncClient(endpoint_url=silent, no_sign_request=True)

    async def main():
        file = await reader.open("s3://b/k", size=10_000_000, etag='"e"')
        buffer = bytearray(1000)
        for call in (lambda: file.preadinto(0, buffer), lambda: file.pread(0, 1000), lambda: file.read(10)):
            begun = time.monotonic()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(call(), 0.2)
            assert time.monotonic() - begun < origins.PATIENCE_S / 4
        buffer.append(0)
        file.prefetch([(5_000_000, 5_001_000)])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(file.preadinto(5_000_000, buffer), 0.2)
        buffer.append(0)
        waiting = asyncio.create_task(file.pread(0, 1000))
        await asyncio.sleep(0.1)
        reader.client.close()
        with pytest.raises(flatout.Cancelled):
            await waiting

    asyncio.run(main())


def test_no_thread_waits_for_a_file_or_for_many(reader, client, url):
    async def main():
        file = await flatout.AsyncClient(client).open(url)
        await file.pread(0, 10)
        [_ async for _ in reader.read_many(URLS[:5])]
        before = tasks.names().count("flatout-call")
        reads = [asyncio.create_task(file.pread(at, 1000)) for at in range(0, SIZE, SIZE // 50)]
        await asyncio.sleep(0)
        many = [index async for index, _ in reader.read_many(URLS)]
        await asyncio.gather(*reads)
        return before, tasks.names().count("flatout-call"), many

    before, after, many = asyncio.run(main())
    assert after <= before and len(many) == COUNT


def test_async_with_closes_what_it_made(serve, client, url):
    async def main():
        async with flatout.AsyncClient(**serve.settings) as own:
            assert len(await own.read(url, 0, 5)) == 5
        assert own.client.closed
        async with flatout.AsyncClient(client) as lent:
            await lent.stat(url)
        assert not client.closed and len(await lent.read(url, 0, 5)) == 5

    asyncio.run(main())


def test_it_serves_several_loops_and_threads(client, url, data):
    reader, got = flatout.AsyncClient(client), []

    async def main():
        file = await reader.open(url)
        [(_, whole)] = [each async for each in reader.read_many([url])]
        [part] = await reader.read_ranges(url, [(5, 9)])
        got.append((await file.pread(0, 5) == data[:5], whole == data, part == data[5:9]))

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(main())
    assert got == [(True, True, True)] * 5


def test_a_forked_child_awaits_for_itself(serve, url, python):
    said = python(
        """
import asyncio, os, sys, threading
import flatout
reader = flatout.AsyncClient(endpoint_url=sys.argv[1])
async def main():
    file = await reader.open(sys.argv[2])
    [(_, whole)] = [each async for each in reader.read_many([sys.argv[2]])]
    return bytes(await file.pread(0, 5)), len(whole), [bytes(part) for part in await reader.read_ranges(sys.argv[2], [(0, 5)])]
before = asyncio.run(main())
pid = os.fork()
if pid == 0:
    threading.Timer(50, os._exit, [1]).start()
    os._exit(0 if asyncio.run(main()) == before else 2)
assert asyncio.run(main()) == before
print(os.waitpid(pid, 0)[1])
""",
        serve.url,
        url,
    )
    assert said == "0\n"


def test_what_is_abandoned_goes(reader):
    async def main():
        async for index, _ in reader.read_many(URLS, concurrency=3):
            break
        gc.collect()
        await asyncio.sleep(0)
        return [index async for index, _ in reader.read_many(URLS[:5])]

    assert asyncio.run(main()) == list(range(5))
