"""Keys that the program gives: two accounts in one process, renewed before they end, never shown and never pickled."""

import copy
import datetime
import logging
import pickle
import threading
import time
import traceback

import pytest

import accounts
import flatout
import origins

SECRET = "very-secret-indeed/+="


def refused(call):
    with pytest.raises(flatout.FlatoutError) as caught:
        call()
    return caught.value


@pytest.fixture(scope="module")
def two():
    """Origins of two accounts, neither that of the environment: each with its URL and keys, and an object of its name."""
    running = []
    for name in ("one", "two"):
        keys = (f"key-of-{name}", f"{SECRET}{name}")
        command = [origins.program(), "serve", "--listen", "127.0.0.1:0", "--synthetic", f"data/{name}=1KiB"]
        origin = origins.Origin("serve", [*command, "--access-key", keys[0], "--secret-key", keys[1]])
        running.append((name, origin, keys))
    yield running
    for _, origin, _ in running:
        origin.stop()


def client_of(origin, credentials, **settings):
    return flatout.Client(credentials=credentials, **origin.settings, **settings)


def test_two_accounts_live_in_one_process(two):
    fixed = [client_of(origin, flatout.Credentials(*keys)) for _, origin, keys in two]
    asked = [client_of(origin, lambda keys=keys: flatout.Credentials(*keys)) for _, origin, keys in two]
    for clients in (fixed, asked):
        for (name, _, _), client in zip(two, clients):
            assert len(client.read(f"s3://data/{name}")) == 1024 and len(client.read(f"oss://data/{name}")) == 1024
    (_, one, _), (_, _, keys) = two
    assert refused(lambda: client_of(one, flatout.Credentials(*keys)).read("s3://data/one")).kind == "denied"


def test_asyncio_has_them_too(two):
    import asyncio

    name, origin, keys = two[0]
    reader = flatout.AsyncClient(credentials=lambda: flatout.Credentials(*keys), **origin.settings)
    assert len(asyncio.run(reader.read(f"s3://data/{name}"))) == 1024


def test_they_are_asked_for_again_before_they_end(two):
    name, origin, keys = two[0]
    asked = threading.Semaphore(0)

    def fresh():
        asked.release()
        return flatout.Credentials(*keys, expires=time.time() + 4)

    with client_of(origin, fresh) as client:
        until = time.monotonic() + origins.PATIENCE_S
        # At half of their life, while the old ones still work.
        for _ in range(3):
            while not asked.acquire(blocking=False):
                assert len(client.read(f"s3://data/{name}")) == 1024 and time.monotonic() < until
    ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=1)
    client = client_of(origin, lambda: flatout.Credentials(*keys, expires=ended))
    assert "had ended already" in str(refused(lambda: client.read(f"s3://data/{name}")))


def failing():
    raise LookupError("the vault is sealed")


@pytest.mark.parametrize(
    "callback, said",
    [
        (failing, "it raised LookupError: the vault is sealed"),
        (lambda: None, "it returned NoneType, not flatout.Credentials"),
        (lambda: {"secret": SECRET}, "it returned dict, not flatout.Credentials"),
    ],
)
def test_a_function_that_has_none(two, callback, said, caplog):
    _, origin, _ = two[0]
    with caplog.at_level(logging.DEBUG, "flatout"):
        error = refused(lambda: client_of(origin, callback).read("s3://data/one"))
    assert error.kind == "denied" and said in str(error) and SECRET not in str(error) + caplog.text


def test_no_secret_is_shown_or_pickled(two):
    name, origin, keys = two[0]
    credentials = flatout.Credentials(*keys, "token-" + SECRET, expires=2_000_000_000)
    assert repr(credentials) == str(credentials) == "Credentials(***, expires=2000000000)" and credentials.expires == 2e9
    assert copy.copy(credentials) is credentials and copy.deepcopy({"credentials": credentials})["credentials"] is credentials
    client = client_of(origin, credentials)
    shown = [repr(client), str(client), repr(client.settings), repr(flatout.AsyncClient(client)), repr(vars(client))]
    try:
        raise RuntimeError
    except RuntimeError as error:
        shown += traceback.TracebackException.from_exception(error, capture_locals=True).format()
    # `keys` is the test's own.
    shown = [line for line in shown if "keys =" not in line and "two =" not in line]
    assert not any(SECRET in each or keys[0] in each for each in shown), shown
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for each in (credentials, client, flatout.AsyncClient(client), client.open(f"s3://data/{name}", size=1024)):
            with pytest.raises(TypeError, match="Credentials are never pickled"):
                pickle.dumps(each, protocol)


def test_a_client_with_a_function_pickles(two, monkeypatch):
    name, origin, keys = two[0]
    monkeypatch.setenv("GIVEN_KEY", keys[0])
    monkeypatch.setenv("GIVEN_SECRET", keys[1])
    held = pickle.dumps(client_of(origin, accounts.given))
    assert SECRET.encode() not in held and len(pickle.loads(held).read(f"s3://data/{name}")) == 1024


@pytest.mark.parametrize(
    "given, kind, said",
    [
        ("secret", TypeError, "a function that returns one, not str"),
        (("a", "b"), TypeError, "not tuple"),
        (flatout.Credentials, TypeError, "not type"),
    ],
)
def test_what_is_none_is_refused(given, kind, said):
    with pytest.raises(kind, match=said):
        flatout.Client(credentials=given)


def test_what_makes_no_sense_is_refused():
    credentials = flatout.Credentials("a", "b")
    with pytest.raises(flatout.UsageError, match="no_sign_request"):
        flatout.Client(credentials=credentials, no_sign_request=True)
    with pytest.raises(TypeError, match="secret_access_key is a str, not int"):
        flatout.Credentials("a", 5)
    with pytest.raises(ValueError, match="access_key_id is empty"):
        flatout.Credentials(" ", "b")
    with pytest.raises(ValueError, match="without a zone"):
        flatout.Credentials("a", "b", expires=datetime.datetime(2030, 1, 1))
    with pytest.raises(TypeError, match="expires is a datetime"):
        flatout.Credentials("a", "b", expires="soon")
    assert flatout.Client(credentials=None).settings == {"credentials": None}


def test_the_thread_that_asks_ends_with_its_client(two):
    def serving():
        return [each for each in threading.enumerate() if each.name == "flatout-credentials"]

    name, origin, keys = two[0]
    before = serving()
    client = client_of(origin, lambda: flatout.Credentials(*keys))
    client.read(f"s3://data/{name}")
    started = [each for each in serving() if each not in before]
    assert len(started) == 1
    client.close()
    started[0].join(origins.PATIENCE_S)
    assert not started[0].is_alive()


def test_a_forked_child_asks_for_itself(two, python):
    name, origin, keys = two[0]
    said = python(
        """
import os, sys, threading
import flatout
asked = []
def fresh():
    asked.append(os.getpid())
    return flatout.Credentials(sys.argv[2], sys.argv[3])
client = flatout.Client(endpoint_url=sys.argv[1], credentials=fresh)
client.read(sys.argv[4])
pid = os.fork()
if pid == 0:
    threading.Timer(50, os._exit, [1]).start()
    client.read(sys.argv[4])
    os._exit(0 if asked[-1] == os.getpid() else 2)
client.read(sys.argv[4])
print(os.waitpid(pid, 0)[1], len(asked))
""",
        origin.url,
        *keys,
        f"s3://data/{name}",
    )
    assert said == "0 1\n"


def test_a_function_that_hangs_keeps_nobody_from_the_end(two, python):
    _, origin, _ = two[0]
    said = python(
        """
import signal, sys, threading, time
import flatout
client = flatout.Client(endpoint_url=sys.argv[1], credentials=lambda: time.sleep(3600))
def interrupt():
    time.sleep(0.5)
    signal.raise_signal(signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    client.read("s3://data/one")
except KeyboardInterrupt:
    print("interrupted")
""",
        origin.url,
    )
    assert said == "interrupted\n"
