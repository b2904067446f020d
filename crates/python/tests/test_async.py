"""The verbs for asyncio."""

import asyncio
import os
import pickle
import socket
import threading
import time

import pytest

import flatout
import origins
import tasks

SIZE = 2_000_000


async def until(happened):
    """Waits for an event."""
    end = time.monotonic() + origins.PATIENCE_S
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.005)


@pytest.fixture(scope="module")
def data(content):
    return content(SIZE)


@pytest.fixture
def url(bucket, data):
    return bucket.put("key", data)


def test_a_hundred_reads_at_once(client, url, data):
    async def main():
        reader = flatout.AsyncClient(client)
        starts = range(0, SIZE, SIZE // 100)
        return starts, await asyncio.gather(*(reader.read(url, start, start + 100) for start in starts))

    starts, got = asyncio.run(main())
    assert [bytes(each) for each in got] == [data[start : start + 100] for start in starts]


def test_no_thread_waits_for_them(client, url):
    async def main():
        reader = flatout.AsyncClient(client)
        await reader.read(url, 0, 10)
        # Also those of which Python knows nothing.
        before = os.listdir("/proc/self/task")
        reads = [asyncio.create_task(reader.read(url)) for _ in range(20)]
        await asyncio.sleep(0)
        during = os.listdir("/proc/self/task")
        await asyncio.gather(*reads)
        return before, during

    before, during = asyncio.run(main())
    assert set(during) <= set(before)


def test_the_same_as_the_client_s(client, bucket, url, data, tmp_path):
    async def main():
        reader = flatout.AsyncClient(client)
        assert await reader.read(url) == data and await reader.read(url, -5) == data[-5:]
        assert await reader.read(url, 5, -5) == data[5:-5] and await reader.read(url, 5, 5) == b""
        # Behind the end there is nothing.
        empty = bucket.put("empty", b"")
        for name, start, end in ((url, SIZE, None), (url, SIZE + 5, SIZE + 9), (empty, None, 5), (empty, -5, None)):
            assert await reader.read(name, start, end) == client.read(name, start, end) == b""
        with pytest.raises(flatout.UsageError):
            await reader.read("no URL", 0, 5)
        buffer = bytearray(SIZE)
        assert await reader.readinto(url, buffer, offset=10, length=100) == 100 and buffer[:100] == data[10:110]
        assert await reader.readinto(url, buffer, length=0) == 0
        for named in ({"offset": SIZE}, {"offset": SIZE + 9, "length": 5}):
            assert await reader.readinto(url, buffer, **named) == client.readinto(url, buffer, **named) == 0
        assert await reader.stat(url) == client.stat(url)
        assert await reader.exists(url) and not await reader.exists(url + "-not")
        assert await reader.ls(bucket.url("")) == client.ls(bucket.url(""))
        assert await reader.download(url, tmp_path / "file") == SIZE
        progress = flatout.Progress()
        await reader.read(url, progress=progress)
        assert (progress.done, progress.total) == (SIZE, SIZE)
        with pytest.raises(FileNotFoundError):
            await reader.read(url + "-not")
        with pytest.raises(flatout.ObjectChanged):
            await reader.read(url, if_match='"another"')
        with pytest.raises(BufferError):
            await reader.readinto(url, b"123")

    asyncio.run(main())
    assert (tmp_path / "file").read_bytes() == data


def test_one_that_is_cancelled_leaves_its_buffer_alone(started):
    origin = started("--synthetic", "data/slow=256MiB", "--no-auth", "--total", "100MiB/s")
    reader = flatout.AsyncClient(no_sign_request=True, **origin.settings)

    async def main():
        buffers, progress = [bytearray(256 << 20), bytearray(1 << 20)], flatout.Progress()
        stopped = asyncio.create_task(reader.readinto("s3://data/slow", buffers[0], progress=progress))
        other = asyncio.create_task(reader.readinto("s3://data/slow", buffers[1], length=1 << 20))
        await until(lambda: progress.done)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        assert any(buffers[0])
        buffers[0][:] = b"\x55" * len(buffers[0])
        assert await other == 1 << 20
        # Long enough for whoever still wrote to it to be seen.
        await asyncio.sleep(0.3)
        assert buffers[0].count(0x55) == len(buffers[0])
        # It is nobody's any more.
        buffers[0].append(0)

    asyncio.run(main())
    reader.client.close()


@pytest.fixture
def silent():
    """An origin that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("verb", ["stat", "exists", "ls", "end"])
def test_what_has_no_transfer_is_cancelled_at_once(silent, verb):
    # The call itself would take ten minutes.
    reader = flatout.AsyncClient(endpoint_url=silent, no_sign_request=True, stall_timeout="10m")
    calls = {"ls": lambda: reader.ls("s3://b/"), "end": lambda: reader.read("s3://b/k", 0, -1)}

    async def main():
        call = asyncio.create_task(calls.get(verb, lambda: getattr(reader, verb)("s3://b/k"))())
        await asyncio.wait([call], timeout=0.2)
        call.cancel()
        assert await asyncio.wait([call], timeout=origins.PATIENCE_S) == ({call}, set()) and call.cancelled()

    asyncio.run(main())


def test_who_has_given_up_is_in_nobodys_way(silent, serve, url):
    """Calls that were cancelled keep threads that wait for their origin, and not those of others."""
    reader = flatout.AsyncClient(**{**serve.settings, "oss_endpoint": silent}, stall_timeout="10m")

    async def main():
        before = tasks.called("flatout-call")
        waiting = [asyncio.create_task(reader.stat(f"oss://b/{number}")) for number in range(300)]
        await until(lambda: len(tasks.called("flatout-call") - before) > 100)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        # Those that were given up wait for ten minutes.
        assert (await asyncio.wait_for(reader.stat(url), origins.PATIENCE_S)).size == SIZE and reader.client.exists(url)

    asyncio.run(main())
    reader.client.close()


def test_what_fails_is_asked_for_once(started):
    """That a read behind the end fails is looked into by a HEAD, and no other failure is."""
    origin = started("--synthetic", "data/object=1MiB", "--no-auth")
    reader = flatout.AsyncClient(no_sign_request=True, **origin.settings)

    def asked(read):
        before = len(origin.requests())
        asyncio.run(read())
        return [request["method"] for request in origin.requests()[before:]]

    async def behind():
        assert await reader.read("s3://data/object", 2 << 20, 3 << 20) == b""

    async def another():
        with pytest.raises(flatout.ObjectChanged):
            await reader.read("s3://data/object", 0, 10, if_match='"another"')

    assert asked(behind) == ["GET", "HEAD"] and asked(another) == ["GET"]


def test_many_are_no_many_threads(silent):
    reader = flatout.AsyncClient(endpoint_url=silent, no_sign_request=True)

    async def main():
        before = tasks.called("flatout-call")
        waiting = [asyncio.create_task(reader.stat(f"s3://b/{number}")) for number in range(500)]
        await until(lambda: len(tasks.called("flatout-call") - before) > 100)
        during = len(tasks.called("flatout-call") - before)
        reader.client.close()
        await asyncio.gather(*waiting, return_exceptions=True)
        return during

    assert 100 < asyncio.run(main()) <= 128


@pytest.mark.parametrize("verb", ["stat", "read"])
def test_closing_the_client_ends_what_is_awaited(silent, verb):
    reader = flatout.AsyncClient(endpoint_url=silent, no_sign_request=True, stall_timeout="10m")

    async def main():
        waiting = [asyncio.create_task(getattr(reader, verb)("s3://b/k")) for _ in range(3)]
        await asyncio.wait(waiting, timeout=0.2)
        reader.client.close()
        return await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), origins.PATIENCE_S)

    ends = asyncio.run(main())
    assert [(type(end), end.cause) for end in ends] == [(flatout.Cancelled, "the client was closed")] * 3


def test_progress_of_what_is_awaited(client, url, capsys):
    reader = flatout.AsyncClient(client)

    async def main(call, progress):
        try:
            await call(progress=progress)
        except flatout.FlatoutError:
            return False
        return True

    for name, is_there in ((url, True), (url + "-not", False)):
        progress = flatout.Progress()
        assert asyncio.run(main(lambda **named: reader.read(name, **named), progress)) == is_there
        assert progress.is_over and progress.elapsed == progress.elapsed
    assert asyncio.run(main(lambda **named: reader.read(url, **named), True))
    assert "1.91M" in capsys.readouterr().err


def test_a_client_serves_several_loops(client, url, data):
    reader = flatout.AsyncClient(client)
    for _ in range(3):
        assert asyncio.run(reader.read(url, 0, 9)) == data[:9]
    got = []
    threads = [threading.Thread(target=lambda: got.append(asyncio.run(reader.read(url)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(each == data for each in got) and len(got) == 3


def test_it_pickles_as_its_client(client, url, data):
    again = pickle.loads(pickle.dumps(flatout.AsyncClient(client)))
    assert asyncio.run(again.read(url, 0, 9)) == data[:9]
    with pytest.raises(TypeError, match="not both"):
        flatout.AsyncClient(client, parallel=1)


def test_a_closed_client_says_so(serve, url):
    reader = flatout.AsyncClient(**serve.settings)
    reader.client.close()
    with pytest.raises(flatout.Cancelled):
        asyncio.run(reader.read(url))
