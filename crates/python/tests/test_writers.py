"""Objects that are written as files."""

import asyncio
import base64
import csv
import email.utils
import gc
import hmac
import io
import os
import pickle
import signal
import tarfile
import threading
import time
import urllib.request
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import origins

import flatout
from test_writes import BOTH, MIB, uploads


@BOTH
@pytest.mark.parametrize("pieces", [[], [0], [1, 5], [8 * MIB], [8 * MIB + 1, 3], [1000] * 3000, [70 * MIB]], ids=lambda pieces: f"{len(pieces)}-{sum(pieces)}")
def test_what_is_written_is_there_when_it_is_closed(client, bucket, content, scheme, pieces):
    url, written = bucket.url("key", scheme), []
    with client.open(url, "wb") as file:
        for number, size in enumerate(pieces):
            written.append(content(size, number) if len(pieces) < 100 else b"x" * size)
            assert file.write(written[-1]) == size
        assert file.tell() == sum(pieces) and not client.exists(url)
        assert (file.writable(), file.readable(), file.seekable(), file.mode, file.name) == (True, False, False, "wb", url)
        file.flush()
    assert file.closed and file.info.size == sum(pieces) and file.info.etag == client.stat(url).etag
    assert client.read(url) == b"".join(written)
    file.close()
    for call in (lambda: file.write(b"1"), file.tell, lambda: file.seek(0), file.writable):
        with pytest.raises(ValueError, match="closed file"):
            call()


def test_an_exception_publishes_nothing(client, bucket, content):
    url = bucket.put("key", b"before")
    for mode in ("wb", "ab", "w", "a"):
        with pytest.raises(KeyError):
            with client.open(url, mode) as file:
                file.write(content(20 * MIB) if "b" in mode else "x" * 20 * MIB)
                raise KeyError
        assert file.closed and client.read(url) == b"before"
        # Nothing is left to be cleared.
        file.close()
    assert uploads(bucket.origin, url) == []


def test_a_writer_that_is_aborted_or_dropped_publishes_nothing(client, bucket, content):
    url = bucket.url("key")
    file = client.open(url, "wb")
    file.write(content(20 * MIB))
    file.abort()
    assert file.closed
    file.close()
    file.abort()
    for mode in ("wb", "w"):
        file = client.open(url, mode)
        file.write(b"1" if mode == "wb" else "1")
        with pytest.warns(ResourceWarning, match="dropped without close"):
            del file
            gc.collect()
    assert not client.exists(url) and uploads(bucket.origin, url) == []


def test_it_is_written_from_start_to_end(client, bucket):
    with client.open(bucket.url("key"), "wb") as file:
        file.write(b"123")
        for call in (lambda: file.seek(0), lambda: file.read(1), lambda: file.truncate(1), file.fileno):
            with pytest.raises(io.UnsupportedOperation):
                call()
        with pytest.raises(TypeError, match="is no str"):
            file.write("text")
        assert file.write(np.arange(3)[:0]) == 0
    assert client.read(bucket.url("key")) == b"123"


def test_modes(client, bucket):
    url = bucket.url("key")
    for mode in ("", "rw", "q", "wbb", "bt", "r b", 5):
        with pytest.raises(ValueError, match="mode is 'r', 'w', 'a' or 'x'"):
            client.open(url, mode)
    for mode in ("r+", "w+b", "rb+"):
        with pytest.raises(flatout.Unsupported, match="read, or written from its start to its end"):
            client.open(url, mode)
    with pytest.raises(ValueError, match="takes no encoding"):
        client.open(url, "wb", encoding="utf-8")
    with pytest.raises(TypeError, match="content_type is an argument of writing"):
        client.open(url, "rb", content_type="a/b")
    with pytest.raises(TypeError, match="etag is an argument of reading"):
        client.open(url, "wb", etag="a/b")
    with pytest.raises(TypeError, match="no argument is called 'colour'"):
        client.open(url, "wb", colour="red")
    assert not client.exists(url)


def test_text(client, bucket):
    url = bucket.url("table.csv")
    with client.open(url, "w", newline="", encoding="utf-16") as file:
        csv.writer(file).writerows([["a", "ä"], [1, 2]])
    assert file.info.content_type == "text/csv"
    assert client.read(url) == "a,ä\r\n1,2\r\n".encode("utf-16")
    with client.open(bucket.url("utf-32"), "a", encoding="utf-32") as file:
        file.write("1")
    assert client.read(bucket.url("utf-32")) == "1".encode("utf-32")
    with client.open(url, "r", encoding="utf-16") as file:
        assert list(csv.reader(file)) == [["a", "ä"], ["1", "2"]]
    with client.open(bucket.url("log"), "a") as file:
        print("one", file=file)
    with client.open(bucket.url("log"), "at") as file:
        print("zwölf", file=file)
    with client.open(bucket.url("log"), "r") as file:
        assert file.readlines() == ["one\n", "zwölf\n"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "latin-1"])
def test_a_text_that_goes_on_has_one_mark(client, bucket, encoding):
    url = bucket.url("key")
    for piece in ("one\n", "two\n"):
        with client.open(url, "a", encoding=encoding) as file:
            file.write(piece)
    assert client.read(url) == "one\ntwo\n".encode(encoding)


def test_what_others_write_with_is_written(client, bucket, tmp_path, content):
    data = {"a": content(3 * MIB), "b": list(range(1000))}
    with client.open(bucket.url("pickle"), "wb") as file:
        pickle.dump(data, file, protocol=5)
    with client.open(bucket.url("pickle")) as file:
        assert pickle.load(file) == data
    with client.open(bucket.url("zip"), "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", data["a"])
        with archive.open("b", "w") as member:
            member.write(b"12" * 1000)
    with client.open(bucket.url("zip")) as file, zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None and archive.read("a") == data["a"] and archive.read("b") == b"12" * 1000
    (tmp_path / "file").write_bytes(data["a"])
    for mode, name in (("w", "tar"), ("w:gz", "tar.gz"), ("w|", "stream.tar")):
        with client.open(bucket.url(name), "wb") as file, tarfile.open(fileobj=file, mode=mode) as archive:
            archive.add(tmp_path / "file", "file")
        with client.open(bucket.url(name)) as file, tarfile.open(fileobj=file) as archive:
            assert archive.extractfile("file").read() == data["a"]
    table = np.arange(300_000.0).reshape(3, -1)
    with client.open(bucket.url("npy"), "wb") as file:
        np.save(file, table)
    with client.open(bucket.url("npz"), "wb") as file:
        np.savez_compressed(file, table=table)
    with client.open(bucket.url("npy")) as file:
        assert (np.load(file) == table).all()
    with client.open(bucket.url("npz")) as file:
        assert (np.load(file)["table"] == table).all()
    arrow = pa.table({"x": table[0]})
    with client.open(bucket.url("parquet"), "wb") as file:
        pyarrow.parquet.write_table(arrow, file)
    with client.open(bucket.url("parquet")) as file:
        assert pyarrow.parquet.read_table(file).equals(arrow)
    with client.open(bucket.url("buffered"), "wb") as file, io.BufferedWriter(file, 1 << 20) as buffered:
        for number in range(10_000):
            buffered.write(b"%d\n" % number)
    assert client.read(bucket.url("buffered")) == b"".join(b"%d\n" % number for number in range(10_000))


@pytest.mark.parametrize("origin", ["serve", "minio"])
@pytest.mark.parametrize("before", [None, 0, 5, 8 * MIB - 1, 8 * MIB, 21 * MIB])
def test_an_object_is_continued(request, bucket_of, content, origin, before):
    origin = request.getfixturevalue(origin)
    bucket = bucket_of(origin)
    with flatout.Client(**origin.settings) as client:
        url, old, more = bucket.url("log"), content(before or 0, 1), content(9 * MIB, 2)
        if before is not None:
            client.write(url, old, content_type="text/x-log", metadata={"k": "v"}, cache_control="no-store")
        with client.open(url, "ab") as file:
            assert file.tell() == len(old)
            file.write(more)
            assert file.tell() == len(old) + len(more)
        assert file.info.size == len(old) + len(more) and client.read(url) == old + more
        if before is not None:
            stored = client.stat(url)
            assert (stored.content_type, stored.metadata) == ("text/x-log", {"k": "v"})
            assert origin.s3.head_object(Bucket=bucket.name, Key="log")["CacheControl"] == "no-store"


@BOTH
def test_an_object_that_was_replaced_is_not_continued(client, bucket, content, scheme):
    for size in (None, 0, 5, 9 * MIB):
        url = bucket.url(f"log-{size}", scheme)
        if size is not None:
            client.write(url, content(size))
        file = client.open(url, "ab")
        file.write(b"mine")
        client.write(url, b"theirs")
        with pytest.raises(flatout.ObjectChanged):
            file.close()
        assert client.read(url) == b"theirs"
    with pytest.raises(flatout.UsageError, match="takes no condition"):
        client.open(url, "ab", overwrite=False)


def test_an_appendable_object_of_oss_grows(client, bucket):
    url = bucket.url("log", "oss")
    append(bucket, "log", 0, b"one ")
    file = client.open(url, "ab")
    file.write(b"no")
    # Every later call raises it, too: nothing is added in part.
    for call in (lambda: file.write(bytes(64 * MIB)), lambda: file.write(b"1"), file.close):
        with pytest.raises(flatout.Unsupported, match="64 MiB are appended"):
            call()
    assert client.read(url) == b"one "
    with client.open(url, "ab") as file:
        assert file.tell() == 4
        file.write(b"two ")
    assert file.info.size == 8 and client.read(url) == b"one two "
    with pytest.raises(KeyError), client.open(url, "ab") as file:
        file.write(b"no")
        raise KeyError
    file = client.open(url, "a")
    file.write("mine")
    file.flush()
    append(bucket, "log", 8, b"theirs")
    with pytest.raises(flatout.ObjectChanged):
        file.close()
    assert client.read(url) == b"one two theirs"
    append(bucket, "log", 14, b": it still takes appends")


def append(bucket, key, position, data):
    """OSS's AppendObject, signed by its first version."""
    date = email.utils.formatdate(usegmt=True)
    asked = f"/{bucket.name}/{key}?append&position={position}"
    text = f"POST\n\napplication/octet-stream\n{date}\n{asked}"
    signed = base64.b64encode(hmac.digest(origins.SECRET_KEY.encode(), text.encode(), "sha1")).decode()
    headers = {"Date": date, "Content-Type": "application/octet-stream", "Authorization": f"OSS {origins.ACCESS_KEY}:{signed}"}
    request = urllib.request.Request(bucket.origin.url + asked, data=data, method="POST", headers=headers)
    with urllib.request.urlopen(request, timeout=origins.PATIENCE_S) as answer:
        assert answer.status == 200


def test_a_failure_is_raised_by_every_call(client, bucket):
    file = client.open("s3://no-such-bucket-here/key", "wb")
    with pytest.raises(flatout.NotFound):
        file.write(bytes(200 * MIB))
        file.close()
    assert not file.closed or file.info is None
    with pytest.raises((flatout.NotFound, ValueError)):
        file.write(b"1")
    small = client.open("s3://no-such-bucket-here/key", "wb")
    small.write(b"1")
    with pytest.raises(flatout.NotFound):
        small.close()
    assert small.closed and small.info is None
    # In a block the failure of `close` is what is raised.
    with pytest.raises(flatout.NotFound):
        with client.open("s3://no-such-bucket-here/key", "w") as text:
            text.write("1")


def test_an_origin_that_goes_away_is_an_error_and_no_wait(started, bucket_of):
    origin = started("--total", "20MiB/s")
    bucket = bucket_of(origin)
    with flatout.Client(outage_timeout="1s", memory="64MiB", **origin.settings) as client:
        file = client.open(bucket.url("key"), "wb")
        threading.Timer(0.5, origin.stop).start()
        since = time.monotonic()
        with pytest.raises(flatout.NetworkError):
            file.write(bytes(256 * MIB))
        assert time.monotonic() - since < 30
        with pytest.raises(flatout.NetworkError):
            file.close()
        assert file.closed


def test_what_is_written_stays_within_the_memory(started, bucket_of):
    origin = started("--sink")
    bucket, seen, over = bucket_of(origin), [], threading.Event()
    with flatout.Client(memory="64MiB", **origin.settings) as client:

        def look():
            while not over.wait(0.01):
                seen.append(client.stats["memory_held"])

        thread = threading.Thread(target=look)
        thread.start()
        with client.open(bucket.url("key"), "wb") as file:
            piece = bytes(32 * MIB)
            for _ in range(16):
                file.write(piece)
        over.set()
        thread.join()
        assert file.info.size == 512 * MIB and 8 * MIB <= max(seen) <= 64 * MIB, max(seen)


def test_one_thread_keeps_more_files_open_than_memory_has_rooms(serve, bucket_of):
    bucket = bucket_of(serve)
    with flatout.Client(memory="64MiB", outage_timeout="1s", **serve.settings) as client:
        files = [client.open(bucket.url(f"key-{number}"), "wb") for number in range(50)]
        full = None
        for number, file in enumerate(files):
            try:
                file.write(b"begun")
            except flatout.UsageError as error:
                full, told = number, str(error)
                break
        assert 3 < full < 10 and "open for writing" in told and "memory" in told, told
        with pytest.raises(flatout.UsageError):
            files.pop(full).close()
        for file in files[:full]:
            file.close()
        for file in files[full:]:
            with file:
                file.write(b"later")
        assert [client.read(file.name) for file in files] == [b"begun"] * full + [b"later"] * (49 - full)


def test_threads_write_one_after_the_other(client, bucket):
    with client.open(bucket.url("key"), "wb") as file:
        pieces = [bytes([number]) * MIB for number in range(24)]
        threads = [threading.Thread(target=file.write, args=(piece,)) for piece in pieces]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    data = bytes(client.read(bucket.url("key")))
    assert sorted(data[at : at + MIB] for at in range(0, len(data), MIB)) == pieces


def test_ctrl_c_ends_a_write_that_waits(python, started, bucket_of):
    origin = started("--total", "1MiB/s")
    url = bucket_of(origin).url("key")
    said = python(
        """if True:
        import flatout, os, signal, sys, threading, time
        client = flatout.Client(endpoint_url=sys.argv[1], memory="64MiB")
        file = client.open(sys.argv[2], "wb")
        def interrupt():
            print(time.monotonic(), flush=True)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(1, interrupt).start()
        try:
            file.write(bytes(256 << 20))
        except KeyboardInterrupt:
            print(time.monotonic())
        for call in (lambda: file.write(b"1"), file.close):
            try:
                call()
            except flatout.Cancelled as error:
                print(error.cause)
        print(file.closed, client.exists(sys.argv[2]))
        """,
        origin.url,
        url,
    ).splitlines()
    assert float(said[1]) - float(said[0]) < 2, said
    assert said[2:] == ["a write was interrupted: nothing is published"] * 2 + ["True False"]
    assert uploads(origin, url) == []


def test_a_signal_s_handler_may_abort_the_write_that_waits(python, started, bucket_of):
    origin = started("--total", "1MiB/s")
    url = bucket_of(origin).url("key")
    said = python(
        """if True:
        import flatout, os, signal, sys, threading
        client = flatout.Client(endpoint_url=sys.argv[1], memory="64MiB")
        file = client.open(sys.argv[2], "wb")
        def handle(*_):
            try:
                file.write(b"1")
            except RuntimeError as error:
                print("reentrant call" in str(error), flush=True)
            file.abort()
            sys.exit(0)
        signal.signal(signal.SIGTERM, handle)
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
        file.write(bytes(256 << 20))
        """,
        origin.url,
        url,
    )
    assert said == "True\n"
    with flatout.Client(**origin.settings) as client:
        assert not client.exists(url) and uploads(origin, url) == []


def test_another_thread_ends_a_write_that_waits(started, bucket_of):
    origin = started("--total", "1MiB/s")
    with flatout.Client(memory="64MiB", **origin.settings) as client:
        file = client.open(bucket_of(origin).url("key"), "wb")
        threading.Timer(0.3, file.abort).start()
        since = time.monotonic()
        with pytest.raises((flatout.FlatoutError, ValueError)):
            file.write(bytes(256 * MIB))
        assert time.monotonic() - since < 10


def test_text_that_cannot_be_written_out_publishes_nothing(client, bucket):
    url = bucket.put("key", b"before")
    file = client.open(url, "w", encoding="ascii")
    file.write("text")
    file.buffer.write = lambda data: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        file.close()
    assert file.closed and client.read(url) == b"before"


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_the_interpreter_s_end_publishes_nothing(python, serve, bucket_of, mode):
    url = bucket_of(serve).url("key")
    python(
        """if True:
        import flatout, sys
        file = flatout.Client(endpoint_url=sys.argv[1]).open(sys.argv[2], sys.argv[3])
        file.write(bytes(20 << 20) if sys.argv[3] == "wb" else "1" * (20 << 20))
        """,
        serve.url,
        url,
        mode,
    )
    with flatout.Client(**serve.settings) as client:
        assert not client.exists(url) and uploads(serve, url) == []


def test_a_loop_that_has_ended_leaves_no_upload(python, serve, bucket_of):
    url = bucket_of(serve).url("key")
    python(
        """if True:
        import asyncio, flatout, sys
        async def main():
            global file
            file = await flatout.AsyncClient(endpoint_url=sys.argv[1]).open(sys.argv[2], "wb")
            await file.write(bytes(40 << 20))
        asyncio.run(main())
        """,
        serve.url,
        url,
    )
    with flatout.Client(**serve.settings) as client:
        assert not client.exists(url) and uploads(serve, url) == []


def test_a_fork_leaves_the_writer_to_its_parent(python, serve, bucket_of):
    url = bucket_of(serve).url("key")
    said = python(
        """if True:
        import flatout, gc, os, sys
        client = flatout.Client(endpoint_url=sys.argv[1])
        file = client.open(sys.argv[2], "wb")
        file.write(b"parent ")
        child = os.fork()
        if child == 0:
            try:
                file.write(b"child")
            except flatout.UsageError as error:
                print(error.cause, "; ", error.hint, sep="", flush=True)
            del file
            gc.collect()
            with client.open(sys.argv[2] + "-child", "wb") as own:
                own.write(b"child")
            os._exit(0)
        print(os.waitpid(child, 0)[1])
        file.write(b"parent")
        file.close()
        print(bytes(client.read(sys.argv[2])), bytes(client.read(sys.argv[2] + "-child")))
        """,
        serve.url,
        url,
    )
    assert said.splitlines() == [
        "this was opened in the process that forked this one, which goes on with it; open it after the fork",
        "0",
        "b'parent parent' b'child'",
    ]


def test_a_killed_writer_has_published_nothing(started, bucket_of, content):
    origin = started("--total", "20MiB/s")
    bucket = bucket_of(origin)
    with flatout.Client(**origin.settings) as client:
        url = bucket.put("key", b"before")
        child = os.fork()
        if child == 0:
            with client.open(url, "wb") as file:
                file.write(bytes(256 * MIB))
            os._exit(0)
        time.sleep(0.7)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert client.read(url) == b"before"


def test_a_closed_client_ends_its_writers(serve, bucket):
    client = flatout.Client(**serve.settings)
    file = client.open(bucket.url("key"), "wb")
    file.write(b"1")
    client.close()
    with pytest.raises(flatout.Cancelled):
        file.close()
    with pytest.raises(flatout.Cancelled):
        client.write(bucket.url("key"), b"1")


def test_asyncio_writes_files(client, bucket, content):
    data = content(40 * MIB)

    async def main():
        writer = flatout.AsyncClient(client)
        url = bucket.url("key")
        async with await writer.open(url, "wb", metadata={"k": "v"}) as file:
            assert await file.write(data) == len(data) and await file.write(b"1") == 1
            assert (file.tell(), file.name, file.closed, file.info) == (len(data) + 1, url, False, None)
            assert not await writer.exists(url)
        assert file.closed and file.info.size == len(data) + 1
        assert await writer.read(url) == data + b"1" and (await writer.stat(url)).metadata == {"k": "v"}
        async with await writer.open(url, "ab") as file:
            await file.write(b"2")
        assert await writer.read(url, -2) == b"12"
        with pytest.raises(FileExistsError):
            await writer.open(url, "xb")
        with pytest.raises(KeyError):
            async with await writer.open(bucket.url("no"), "xb") as file:
                await file.write(data)
                raise KeyError
        with pytest.raises(ValueError, match="closed file"):
            await file.write(b"1")
        await file.aclose()
        with pytest.raises(flatout.NotFound):
            async with await writer.open("s3://no-such-bucket-here/key", "wb") as file:
                await file.write(b"1")
        for mode in ("w", "r", "w+b"):
            with pytest.raises(flatout.Unsupported):
                await writer.open(url, mode)
        with pytest.warns(ResourceWarning, match="dropped without aclose"):
            file = await writer.open(bucket.url("no"), "wb")
            del file
            gc.collect()
        assert not await writer.exists(bucket.url("no"))

    asyncio.run(main())


def test_many_tasks_write_at_once(client, bucket):
    """Waits for memory held all threads, and commits, which give it back, waited behind them."""

    async def main():
        with flatout.Client(memory="64MiB", **bucket.origin.settings) as small:
            writer = flatout.AsyncClient(small)

            async def one(number):
                async with await writer.open(bucket.url(f"{number}"), "wb") as file:
                    await file.write(b"%d" % number)

            await asyncio.wait_for(asyncio.gather(*map(one, range(300))), 100)

    asyncio.run(main())
    assert client.read(bucket.url("299")) == b"299" and len(client.ls(bucket.url(""))) == 300


def test_tasks_do_not_write_between_each_other(started, bucket_of):
    origin = started("--total", "4MiB/s")

    async def main():
        with flatout.Client(memory="64MiB", **origin.settings) as client:
            file = await flatout.AsyncClient(client).open(bucket_of(origin).url("key"), "wb")
            data = bytearray(256 * MIB)
            task = asyncio.ensure_future(file.write(data))
            await asyncio.sleep(0.2)
            with pytest.raises(RuntimeError, match="another task writes"):
                await file.write(b"1")
            with pytest.raises(BufferError):
                data.clear()
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(main())


def test_an_awaited_write_waits_and_is_cancelled(started, bucket_of):
    origin = started("--total", "1MiB/s")
    bucket = bucket_of(origin)

    async def main():
        with flatout.Client(memory="64MiB", **origin.settings) as client:
            file = await flatout.AsyncClient(client).open(bucket.url("key"), "wb")
            task = asyncio.ensure_future(file.write(bytearray(256 * MIB)))
            ticks = 0
            for _ in range(50):
                await asyncio.sleep(0.01)
                ticks += 1
            assert not task.done() and ticks == 50
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert file.closed and not client.exists(bucket.url("key"))
            assert uploads(origin, bucket.url("key")) == []

    asyncio.run(main())
