"""Running inside Python: signals, forks, other processes, and the interpreter's end."""

import multiprocessing
import os
import pickle
import socket
import threading
import time

import pytest

import flatout
import origins
import tasks

SIZE = 64 << 20


@pytest.fixture(scope="module")
def slow(started):
    """An object that takes its time."""
    return started("--synthetic", "data/slow=256MiB", "--no-auth", "--total", "40MiB/s")


@pytest.fixture(scope="module")
def endless(started):
    """An object that takes minutes: a call that ends sooner was ended."""
    return started("--synthetic", "data/slow=256MiB", "--no-auth", "--total", "1MiB/s")


@pytest.fixture(scope="module")
def quick(started):
    return started("--synthetic", "data/object=64MiB", "--no-auth")


SETUP = """
import os, signal, sys, threading, time
import flatout
client = flatout.Client(endpoint_url=sys.argv[1], no_sign_request=True)
"""


@pytest.mark.parametrize(
    "call",
    [
        'client.readinto("s3://data/slow", buffer)',
        'client.read("s3://data/slow")',
        'client.read_ranges("s3://data/slow", [(0, 64 << 20)], out=[buffer])',
        'list(client.read_many(["s3://data/slow"]))',
        'client.download("s3://data/slow", sys.argv[2])',
        'client.open("s3://data/slow").readinto(buffer)',
    ],
)
def test_ctrl_c_ends_a_call_and_leaves_its_buffer_quiet(endless, python, call, tmp_path):
    target = tmp_path / "target"
    said = python(
        SETUP
        + f"""
buffer = bytearray(1 << 28)
client.stat("s3://data/slow")
sent = []
def interrupt():
    time.sleep(0.7)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    {call}
except KeyboardInterrupt:
    took = time.monotonic() - sent[0]
buffer[:] = b"\\x55" * len(buffer)
time.sleep(0.5)
assert buffer.count(0x55) == len(buffer)
buffer.append(0)
# The client serves on.
assert client.stat("s3://data/slow").size == 1 << 28
print(took)
""",
        endless.url,
        target,
    )
    # 100 ms is what is promised. Here it counts that the call ended before its object, of which 64 MiB take a minute.
    assert float(said) < 30
    assert not target.exists()


@pytest.mark.parametrize(
    "call",
    [
        'fsspec.S3FileSystem(**client.settings).cat_ranges(["b/x", "b/x", "b/y", "b/y"], [0, 5, 0, 5], [1, 6, 1, 6])',
        'arrow.arrow_fs(client).get_file_info(["b/x", "b/y"])',
    ],
)
def test_ctrl_c_ends_calls_of_several_threads(python, call):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = python(
            SETUP.replace("no_sign_request=True", "no_sign_request=True, stall_timeout='10m'")
            + f"""
from flatout import arrow, fsspec
sent = []
def interrupt():
    time.sleep(0.7)
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    {call}
except KeyboardInterrupt:
    print(time.monotonic() - sent[0])
""",
            f"http://127.0.0.1:{silent.getsockname()[1]}",
        )
        # The interpreter, of which `python` has patience for a minute, does not wait for them either.
        assert float(said) < 30


def test_what_a_handler_raises_is_raised(slow, python):
    python(
        SETUP
        + """
class Enough(Exception): pass
def stop(number, frame): raise Enough()
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    client.read("s3://data/slow")
except Enough:
    print("raised")
heard = []
signal.signal(signal.SIGALRM, lambda number, frame: heard.append(number))
signal.setitimer(signal.ITIMER_REAL, 0.1)
assert len(client.read("s3://data/slow", 0, 20 << 20)) == 20 << 20 and heard
""",
        slow.url,
    )


def test_other_threads_run_meanwhile(slow, python):
    said = python(
        SETUP
        + """
ticks, over = 0, threading.Event()
def tick():
    global ticks
    while not over.wait(0.01):
        ticks += 1
threading.Thread(target=tick).start()
client.read("s3://data/slow", 0, 30 << 20)
over.set()
print(ticks)
""",
        slow.url,
    )
    # Of 75 on a machine that has time for them; without the lock there is none.
    assert int(said) > 3


def test_transfers_go_on_while_the_lock_is_held(slow, python):
    """One call in C that gives the interpreter's lock to nobody: what is on its way needs none."""
    said = python(
        SETUP
        + """
import itertools
progress, ticks, over = flatout.Progress(), [], threading.Event()
buffer = bytearray(200 << 20)
def read():
    try:
        client.readinto("s3://data/slow", buffer, length=len(buffer), progress=progress)
    except flatout.FlatoutError:
        pass
def tick():
    while not over.wait(0.001):
        ticks.append(time.monotonic())
for each in (read, tick):
    threading.Thread(target=each).start()
while not progress.done:
    time.sleep(0.01)
count, took = 10_000_000, 0
while took < 0.5:
    count *= 2
    before, begun = progress.done, time.monotonic()
    sum(itertools.repeat(1, count))
    ended = time.monotonic()
    after, took = progress.done, ended - begun
over.set()
client.close()
# Nobody else had the lock meanwhile, but for its edges.
assert not [at for at in ticks if begun + 0.1 < at < ended - 0.1], (begun, ended)
print(after - before)
""",
        slow.url,
    )
    # Of 20 MiB and more, where the machine has time for them.
    assert int(said) > 1 << 20


@pytest.mark.parametrize("ends", ["return", "sys.exit(0)", "raise SystemExit(0)"])
def test_the_interpreter_ends_with_a_transfer_in_flight(endless, python, ends):
    # It has a minute's patience, and the object takes four.
    python(
        SETUP
        + f"""
buffer = bytearray(1 << 28)
def read():
    try:
        client.readinto("s3://data/slow", buffer)
    except flatout.Cancelled:
        pass
    try:
        client.stat("s3://data/slow")
    except flatout.Cancelled as error:
        assert "ends" in str(error)
    time.sleep(600)
threading.Thread(target=read, daemon=True).start()
for target in (lambda: list(client.ls("s3://data/")), lambda: client.open("s3://data/slow").read()):
    threading.Thread(target=target, daemon=True).start()
def main():
    time.sleep(0.4)
    {ends}
main()
""",
        endless.url,
    )


def test_the_interpreter_ends_with_a_task_in_flight(slow, python):
    python(
        SETUP
        + """
import asyncio
reader = flatout.AsyncClient(client)
buffer = bytearray(1 << 28)
async def main():
    asyncio.ensure_future(reader.readinto("s3://data/slow", buffer))
    await asyncio.sleep(0.3)
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
""",
        slow.url,
    )


def test_a_fork_with_a_transfer_in_flight(slow, quick, python):
    """Both go on: the parent's transfer, and the child with threads of its own; with a client that was used before."""
    python(
        SETUP
        + """
quick = sys.argv[2]
other = flatout.Client(endpoint_url=quick, no_sign_request=True)
whole = other.read("s3://data/object")
file = other.open("s3://data/object")
assert file.pread(5, 10) == whole[5:15]
buffer, result = bytearray(60 << 20), []
reading = threading.Thread(target=lambda: result.append(client.readinto("s3://data/slow", buffer, length=60 << 20)))
reading.start()
time.sleep(0.3)
many = other.read_many(["s3://data/object"] * 3)
next(many)
children = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        try:
            assert other.read("s3://data/object") == whole
            assert client.read("s3://data/slow", 0, 1000) == client.read("s3://data/slow", 0, 1000)
            assert file.pread(100, 1000) == whole[100:1100]
            try:
                next(many)
            except flatout.UsageError as error:
                assert "forked" in str(error)
            # It forks with a transfer of its own in flight, too.
            own, landed = bytearray(2 << 20), []
            mine = threading.Thread(target=lambda: landed.append(client.readinto("s3://data/slow", own, length=2 << 20)))
            mine.start()
            time.sleep(0.02)
            grandchild = os.fork()
            if grandchild == 0:
                assert other.read("s3://data/object", 0, 10) == whole[:10]
                # As an interpreter ends, with atexit.
                sys.exit(0)
            assert os.waitpid(grandchild, 0)[1] == 0
            mine.join()
            assert landed == [2 << 20] and any(own)
            client.close()
            sys.exit(0)
        except SystemExit:
            raise
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    children.append(pid)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
reading.join()
assert result == [60 << 20]
assert client.read("s3://data/slow", 0, 1 << 20) == buffer[:1 << 20]
assert len(next(many)[1]) == 64 << 20
""",
        slow.url,
        quick.url,
    )


def read_in_worker(client, url):
    count = sum(name.startswith("flatout") for name in tasks.names())
    return bytes(client.read(url, 0, 1000)), bytes(client.open(url).pread(5, 5)), count


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers(quick, method):
    client = flatout.Client(endpoint_url=quick.url, no_sign_request=True)
    url = "s3://data/object"
    first = bytes(client.read(url, 0, 1000))
    with multiprocessing.get_context(method).Pool(3) as pool:
        got = pool.starmap(read_in_worker, [(client, url)] * 12)
    assert [(whole, part) for whole, part, _ in got] == [(first, first[5:10])] * 12
    # What nobody has said is divided among the workers: of two cores or more a shard each, and who is called now and then.
    assert max(count for _, _, count in got) <= max(2, os.cpu_count() // 3 + 1)


def test_workers_have_few_threads_and_share_the_memory(quick, python, monkeypatch):
    """What nobody has said is divided among the processes of a machine; what somebody has said stays."""
    program = """
import json, os, sys
import flatout
client = flatout.Client(endpoint_url=sys.argv[1], no_sign_request=True, **json.loads(sys.argv[2]))
client.read("s3://data/object")
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(sum(name.startswith("flatout") for name in names), client.memory_limit)
"""
    import json

    def count(ranks, **settings):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
        threads, memory = python(program, quick.url, json.dumps(settings)).split()
        return int(threads), int(memory)

    alone, many = count(1), count(64)
    assert many[0] <= alone[0] and many[0] <= 2, (alone, many)
    assert many[1] <= max(alone[1] // 64, 64 << 20) and count(2)[1] == alone[1] // 2
    assert count(64, memory="300MiB", shards=2)[1] == 300 << 20


def test_a_pickle_holds_no_secret(serve, bucket):
    url = bucket.put("key", b"123")
    client = flatout.Client(**serve.settings)
    assert client.read(url) == b"123"
    file = client.open(url)
    for each in (client, file, flatout.AsyncClient(client), client.stat(url)):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            held = pickle.dumps(each, protocol)
            assert origins.SECRET_KEY.encode() not in held and origins.ACCESS_KEY.encode() not in held
    again = pickle.loads(pickle.dumps(client))
    assert type(again) is flatout.Client and again.settings == client.settings and again.read(url) == b"123"
    for name in ("proxy", "endpoint_url", "oss_endpoint"):
        for scheme in ("http://", ""):
            told = flatout.Client(**{name: f"{scheme}user:hidden@127.0.0.1:1"})
            with pytest.raises(flatout.UsageError, match=f"'{name}' holds a password") as error:
                pickle.dumps(told)
            assert "hidden" not in str(error.value) and f"FLATOUT_{name.upper()}" in error.value.hint
            assert "hidden" not in repr(told) and "127.0.0.1:1" in repr(told)
    assert "hidden" not in repr(flatout.Client(endpoint_url="http://127.0.0.1:1/?key=hidden"))


def test_a_fork_while_another_thread_makes_the_default_client(python):
    said = python(
        """
import os, threading
import flatout, flatout.client
flatout.client._making.acquire()
pid = os.fork()
if pid == 0:
    threading.Timer(20, os._exit, [1]).start()
    os._exit(0 if flatout.default_client() is flatout.default_client() else 2)
print(os.waitpid(pid, 0)[1])
"""
    )
    assert said == "0\n"


def test_reads_that_are_let_go_of_take_their_progress_along(quick):
    client, progress = flatout.Client(endpoint_url=quick.url, no_sign_request=True), flatout.Progress()
    reads = flatout._native.ReadQueue(client, progress)
    reads.start(0, "s3://data/object", 0, 10)
    del reads
    assert progress.is_over


def test_a_client_is_closed_while_others_wait(slow):
    client = flatout.Client(endpoint_url=slow.url, no_sign_request=True)
    buffer, raised = bytearray(1 << 28), []

    def read():
        try:
            client.readinto("s3://data/slow", buffer, length=1 << 28)
        except flatout.Cancelled as error:
            raised.append(error)

    threads = [threading.Thread(target=read) for _ in range(1)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    client.close()
    for thread in threads:
        thread.join(60)
    assert len(raised) == 1
    buffer.append(0)


def test_nothing_is_started_before_the_first_use(python, quick):
    said = python(
        SETUP + 'print(len(os.listdir("/proc/self/task"))); client.read("s3://data/object"); client.close()',
        quick.url,
    )
    assert int(said) == 1
