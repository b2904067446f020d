"""Versions by their id, of a bucket that keeps them: every verb reads the one that is named."""

import asyncio

import pytest

import flatout
import origins

OLD, NEW = b"old" * 1000, b"the new one" * 1000


@pytest.fixture(scope="module")
def kept(minio):
    """A client, a URL, and the ids of two versions of its object."""
    name = "versions"
    bucket = origins.Bucket(minio, name)
    minio.s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    ids = [minio.s3.put_object(Bucket=name, Key="a key", Body=data)["VersionId"] for data in (OLD, NEW)]
    with flatout.Client(**minio.settings) as client:
        yield client, bucket.url("a key"), ids


def test_every_verb_reads_the_version_that_is_named(kept, tmp_path):
    client, url, ids = kept
    for data, version_id in zip((OLD, NEW), ids):
        named = {"version_id": version_id}
        buffer = client.read(url, **named)
        assert buffer == data and buffer.info.version_id == version_id and buffer.info.size == len(data)
        assert client.read(url, 2, -5, **named) == data[2:-5] and client.read(url, len(data), None, **named) == b""
        into = bytearray(len(data))
        assert client.readinto(url, into, **named) == len(data) and into == data
        assert [bytes(part) for part in client.read_ranges(url, [(0, 3), (-3, None)], **named)] == [data[:3], data[-3:]]
        assert client.download(url, tmp_path / "file", **named) == len(data) == (tmp_path / "file").stat().st_size
        info = client.stat(url, **named)
        assert (info.size, info.version_id) == (len(data), version_id) and client.exists(url, **named)
        with client.open(url, **named) as file:
            assert file.read() == data and file.pread(1, 5) == data[1:6]
        assert [each for _, each in client.read_many([info, url])] == [data, NEW]
    assert client.read(url) == NEW and client.read(url).info.version_id == ids[1] == client.stat(url).version_id


def test_asyncio_does_so_too(kept, tmp_path):
    client, url, (old, _) = kept

    async def main():
        reader = flatout.AsyncClient(client)
        assert await reader.read(url, version_id=old) == OLD and await reader.read(url, 5, -5, version_id=old) == OLD[5:-5]
        into = bytearray(len(OLD))
        assert await reader.readinto(url, into, version_id=old) == len(OLD) and into == OLD
        assert (await reader.read_ranges(url, [(0, 3)], version_id=old)) == [OLD[:3]]
        assert await reader.download(url, tmp_path / "file", version_id=old) == len(OLD)
        assert (await reader.stat(url, version_id=old)).version_id == old and await reader.exists(url, version_id=old)
        async with await reader.open(url, version_id=old) as file:
            assert await file.read() == OLD
        info = await reader.stat(url, version_id=old)
        assert [each async for _, each in reader.read_many([info, url])] == [OLD, NEW]

    asyncio.run(main())


def test_a_file_stays_with_its_version(kept, bucket_of, minio):
    import pickle

    client, url, (old, _) = kept
    with client.open(url, version_id=old) as file:
        assert file.read(3) == OLD[:3]
        again = pickle.loads(pickle.dumps(file))
        assert again.read() == OLD[3:]


def test_a_presigned_url_names_it(kept):
    import urllib.request

    client, url, (old, _) = kept
    assert urllib.request.urlopen(client.presign(url, version_id=old)).read() == OLD
    asked = asyncio.run(flatout.AsyncClient(client).presign(url, version_id=old))
    assert urllib.request.urlopen(asked).read() == OLD


def test_no_such_version(kept):
    client, url, _ = kept
    with pytest.raises(flatout.FlatoutError):
        client.read(url, version_id="00000000-0000-0000-0000-000000000000")
    assert not client.exists(url, version_id="00000000-0000-0000-0000-000000000000")


def test_a_plain_url_has_none(client):
    with pytest.raises(flatout.UsageError, match="a plain URL has no version ids"):
        client.read("http://127.0.0.1:1/key", version_id="5")


@pytest.mark.parametrize("signature", ["v4", "v1"])
def test_oss_is_asked_for_it(serve, bucket, signature):
    """`flatout serve` keeps no versions but the one that it calls null, and checks first that the id was signed."""
    url = bucket.put("key", b"123").replace("s3://", "oss://")
    with flatout.Client(oss_signature=signature, **serve.settings) as client:
        with pytest.raises(flatout.NotFound, match="404 NoSuchVersion: this origin has no versions, and so not CAEQ/\\+ ="):
            client.read(url, version_id="CAEQ/+ =")
        assert client.read(url, version_id="null") == b"123" and client.exists(url, version_id="null")
        assert "versionId=CAEQ%2F%2B%20%3D" in client.presign(url, version_id="CAEQ/+ =")
