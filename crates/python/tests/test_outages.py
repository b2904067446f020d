"""An origin that goes away in the middle, and comes back: nothing fails, every byte is right. One that stays away is an error."""

import asyncio
import concurrent.futures
import os
import subprocess
import sys
import threading
import time

import pytest

import flatout
import origins
from links import AWAY_S, link  # noqa: F401

SIZE = 12 << 20
RATE = f"{SIZE // 3}/s"
COUNT = 3000


@pytest.fixture(scope="module")
def data(content):
    return content(SIZE)


@pytest.fixture(scope="module")
def large(minio, data):
    bucket = origins.Bucket(minio, "outages")
    return bucket.put("large", data)


@pytest.fixture(scope="module")
def many(started):
    return started("--synthetic", f"many/file-%04d=1KiB*{COUNT}", "--no-auth")


def names():
    return [f"s3://many/file-{number:04d}" for number in range(COUNT)]


def chunks(file):
    got = bytearray()
    while piece := file.read(100_000):
        got += piece
    return got


def test_verbs_ride_out_an_outage(link, minio, many, large, data, tmp_path):
    """Each with a link of its own, which is cut when some of it has come; all at once, since they wait."""

    def downloaded(client):
        client.download(large, tmp_path / "file")
        return (tmp_path / "file").read_bytes()

    def into(client):
        buffer = bytearray(SIZE)
        assert client.readinto(large, buffer) == SIZE
        return buffer

    def ranges(client):
        cuts = range(0, SIZE, 100_000)
        return b"".join(map(bytes, client.read_ranges(large, [(at, min(at + 100_000, SIZE)) for at in cuts])))

    def opened(client):
        with client.open(large) as file:
            return chunks(file)

    async def awaited(client):
        return await flatout.AsyncClient(client).read(large)

    def many_read(client):
        got = dict(client.read_many(names(), ordered=False))
        assert len(got) == COUNT and all(len(each) == 1024 for each in got.values())

    def many_downloaded(client):
        folder = tmp_path / "many"
        folder.mkdir()
        some = names()[:1000]
        client.download_many([(url, folder / url.rpartition("/")[2]) for url in some])
        assert len(os.listdir(folder)) == len(some)

    wholes = {
        "read": lambda client: client.read(large),
        "readinto": into,
        "read_ranges": ranges,
        "open": opened,
        "download": downloaded,
        "async": lambda client: asyncio.run(awaited(client)),
    }

    def ride_out(name):
        if name in wholes:
            ours = link(minio)
            client = flatout.Client(bandwidth=RATE, **ours.settings)
            cut = ours.away_after(SIZE // 4)
            assert wholes[name](client) == data
        else:
            ours = link(many)
            client = flatout.Client(no_sign_request=True, request_rate=500, **ours.settings)
            cut = ours.away_after(200_000)
            {"read_many": many_read, "download_many": many_downloaded}[name](client)
        assert not cut.is_alive(), "it was over before the origin was back"
        client.close()

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        rides = {name: pool.submit(ride_out, name) for name in [*wholes, "read_many", "download_many"]}
    failed = {name: repr(ride.exception()) for name, ride in rides.items() if ride.exception()}
    assert not failed


def test_listings_ride_out_an_outage(link, many):
    ours = link(many)
    with flatout.Client(no_sign_request=True, **ours.settings) as client:
        pages = client.ls_pages("s3://many/")
        first = next(pages)
        ours.cut()
        back = threading.Timer(AWAY_S, ours.mend)
        back.start()
        rest = [entry for page in pages for entry in page]
        back.join()
    assert [entry.url for entry in first + rest] == names()


def test_the_fsspec_class_rides_out_an_outage(link, minio, large, data):
    fsspec = pytest.importorskip("fsspec")
    ours = link(minio)
    settings = {"bandwidth": RATE, **ours.settings}
    fs = fsspec.filesystem("flatout", skip_instance_cache=True, **settings)
    cut = ours.away_after(SIZE // 4)
    with fs.open(large.removeprefix("s3://")) as file:
        assert chunks(file) == data
    cut.join()


def test_an_origin_that_stays_away_is_an_error(link, many):
    ours = link(many)
    with flatout.Client(no_sign_request=True, outage_timeout="2s", **ours.settings) as client:
        assert len(client.read(names()[0])) == 1024
        ours.cut()
        for call in (
            lambda: client.read(names()[1]),
            lambda: list(client.read_many(names())),
            lambda: client.ls("s3://many/"),
        ):
            before = time.monotonic()
            with pytest.raises(flatout.NetworkError, match="127") as caught:
                call()
            assert isinstance(caught.value, ConnectionError)
            # What is asked later may be told at once: its time without progress is over.
            assert time.monotonic() - before < origins.PATIENCE_S
        ours.mend()
        # It is asked again, by whoever comes then.
        assert len(client.read(names()[2])) == 1024


def test_who_waits_for_an_origin_can_be_interrupted(link, many):
    ours = link(many)
    program = """
import os, signal, sys, threading, flatout
client = flatout.Client(no_sign_request=True, endpoint_url=sys.argv[1])
assert len(client.read("s3://many/file-0000")) == 1024
print("answered", flush=True)
sys.stdin.readline()
threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    client.read("s3://many/file-0001")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    command = [sys.executable, "-c", program, ours.settings["endpoint_url"]]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "answered\n"
        ours.cut()
        said, _ = child.communicate("\n", timeout=origins.PATIENCE_S)
        assert said == "interrupted\n" and child.returncode == 0
    finally:
        child.kill()
        child.wait()
