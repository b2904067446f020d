"""What `logging` is told under the name `flatout`: what was tried again, and new keys; nothing secret, and nothing unasked."""

import asyncio
import logging

import pytest

import flatout
import origins


@pytest.fixture
def failing(started):
    """An origin that refuses every third request for a moment."""
    origin = started("--synthetic", "data/key=1MiB", "--no-auth", "--error", "0.5:InternalError")
    return origin


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "flatout"]


def test_what_is_tried_again_is_told(failing, caplog):
    with flatout.Client(no_sign_request=True, retries=20, **failing.settings) as client, caplog.at_level(logging.DEBUG, "flatout"):
        for _ in range(10):
            client.read("s3://data/key")
        import time

        time.sleep(0.3)
        client.read("s3://data/key")
    told = lines(caplog)
    assert any("tried again" in line and failing.url.removeprefix("http://") in line for line in told), told
    assert all(record.levelno == logging.WARNING for record in caplog.records if record.name == "flatout")


def test_asyncio_is_told_too(failing, caplog):
    async def main():
        async with flatout.AsyncClient(no_sign_request=True, retries=20, **failing.settings) as reader:
            for _ in range(10):
                await reader.read("s3://data/key")
            await asyncio.sleep(0.3)
            await reader.read("s3://data/key")

    with caplog.at_level(logging.DEBUG, "flatout"):
        asyncio.run(main())
    assert any("tried again" in line for line in lines(caplog))


def test_new_keys_are_told_and_not_shown(serve, bucket, caplog):
    url = bucket.put("key", b"1")
    fresh = lambda: flatout.Credentials(origins.ACCESS_KEY, origins.SECRET_KEY, expires=4_000_000_000)
    with flatout.Client(credentials=fresh, **serve.settings) as client, caplog.at_level(logging.DEBUG, "flatout"):
        client.read(url)
    assert any("credentials: the function returned new ones, which end at 4000000000" in line for line in lines(caplog))
    assert origins.SECRET_KEY not in caplog.text and origins.ACCESS_KEY not in caplog.text


def test_a_profile_that_is_missing_is_told(serve, bucket, caplog, monkeypatch):
    url = bucket.put("key", b"1")
    for name, value in [("PROFILE", "dve"), ("ACCESS_KEY_ID", origins.ACCESS_KEY), ("SECRET_ACCESS_KEY", origins.SECRET_KEY)]:
        monkeypatch.setenv(f"AWS_{name}", value)
    with flatout.Client(**serve.settings) as client, caplog.at_level(logging.DEBUG, "flatout"):
        for _ in range(3):
            client.read(url)
    assert [line for line in lines(caplog) if "'dve'" in line] == [lines(caplog)[0]], lines(caplog)


def test_nothing_is_shown_unasked(failing, python):
    said = python(
        """
import contextlib, io, sys
with contextlib.redirect_stderr(io.StringIO()) as shown:
    import flatout
    client = flatout.Client(endpoint_url=sys.argv[1], no_sign_request=True, retries=20)
    for _ in range(10):
        client.read("s3://data/key")
print(repr(shown.getvalue()))
""",
        failing.url,
    )
    assert said == "''\n"


def test_a_handler_that_fails_does_not_harm_the_call(failing):
    class Broken(logging.Handler):
        def emit(self, record):
            raise LookupError("broken")

    logger, handler = logging.getLogger("flatout"), Broken()
    logger.addHandler(handler)
    try:
        with flatout.Client(no_sign_request=True, retries=20, **failing.settings) as client:
            for _ in range(10):
                assert len(client.read("s3://data/key")) == 1 << 20
    finally:
        logger.removeHandler(handler)
