"""A user's program that uses every public name: `mypy --strict` and `pyright` in strict mode have nothing to say about it.

It is looked at, not run (test_types.py).
"""

import asyncio
import datetime
import pathlib
import pickle
from collections.abc import Iterator

import flatout
import flatout.aio
import flatout.client
import flatout.compat.oss
import flatout.errors
import flatout.io
import flatout.safetensors
import flatout.verbs
from flatout.safetensors import RawTensor, load_file, load_model, safe_open, stream_tensors

URL = "s3://bucket/key"


def fresh() -> flatout.Credentials:
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    return flatout.Credentials("key", "secret", "token", expires=end)


def clients() -> Iterator[flatout.Client]:
    settings: flatout.Settings = {"endpoint_url": "http://127.0.0.1:9000", "parallel": 32}
    yield flatout.Client(**settings)
    yield flatout.Client(part_size="4MiB", resolve=["a:1:127.0.0.1"], addressing="path", no_sign_request=True)
    yield flatout.Client(credentials=fresh)
    with flatout.Client(credentials=flatout.Credentials("key", "secret")) as client:
        yield client
    yield flatout.default_client()
    yield flatout.client.default_client()


def of_a_client(client: flatout.Client) -> None:
    settings: dict[str, object] = dict(client.settings)
    limit: int = client.memory_limit
    stats: dict[str, int] = client.stats
    is_closed: bool = client.closed
    print(settings, limit, stats, is_closed, pickle.dumps(client))
    size: int = len(client.read(URL, 0, 10, if_match='"e"', version_id="v", progress=True))
    size += client.readinto(URL, bytearray(10), 0, 10)
    size += client.readinto(URL, bytearray(10), offset=0, length=10)
    parts: list[flatout.Buffer] = client.read_ranges(URL, [(0, 1), (-5, None)])
    sizes: list[int] = client.read_ranges(URL, [(0, 1)], out=[bytearray(1)], max_gap=0)
    for index, buffer in client.read_many([URL, (URL, 0, 5)], ordered=False, concurrency=5):
        size += index + len(buffer)
    many: flatout.ReadMany[flatout.Buffer | flatout.FlatoutError]
    many = client.read_many(client.ls("s3://bucket/"), return_exceptions=True)
    for _, result in many:
        if isinstance(result, flatout.FlatoutError):
            print(result.kind, result.doing, result.object, result.cause, result.hint, result.message)
        else:
            size += len(result)
    many.close()
    size += client.download(URL, pathlib.Path("file"))
    sizes += client.download_many([(URL, "file")])
    for outcome in client.download_many([(URL, "file")], return_exceptions=True):
        print(outcome if isinstance(outcome, int) else outcome.hint)
    pages: flatout.Pages = client.ls_pages("s3://bucket/", recursive=True)
    names: list[str] = [entry.name for page in pages for entry in page] + client.buckets("oss")
    of_an_entry(client.stat(URL))
    url: str = client.presign(URL, expires=datetime.timedelta(hours=1), version_id="v")
    of_a_native_file(client.file(URL, size=5, etag='"e"', modified=1.0))
    of_a_file(client.open(URL))
    print(parts, names, url, client.exists(URL))
    client.close()


def of_an_entry(info: flatout.Info) -> None:
    told: tuple[str, str, str, int | None, str | None] = (info.url, info.key, info.name, info.size, info.etag)
    more: tuple[float | None, str | None, bool] = (info.modified, info.storage_class, info.is_prefix)
    last: tuple[dict[str, str], str | None, str | None] = (info.metadata, info.content_type, info.version_id)
    print(told, more, last)


def of_a_buffer(buffer: flatout.Buffer) -> None:
    view: memoryview = memoryview(buffer)
    part: memoryview = buffer[1:3]
    byte: int = buffer[0]
    text: str = buffer.decode("latin-1", "replace")
    data: bytes = bytes(buffer) + (buffer + b"1")
    is_there: bool = b"1" in buffer or 5 in buffer or buffer.startswith(b"1") or buffer.endswith(b"2")
    info: flatout.Info | None = buffer.info
    print(view, part, byte, text, data, is_there, info, buffer == b"12", flatout.Buffer(b"12"), list(buffer))
    print(buffer.__dlpack_device__(), buffer.__dlpack__())


def of_a_native_file(file: flatout.File) -> None:
    print(file.url, file.size, file.etag, file.modified, file.version_id, file.client, file.closed, file.stats)
    buffer: flatout.Buffer = file.pread(0, 5)
    data: bytes = file.pread_bytes(0)
    count: int = file.preadinto(0, bytearray(5))
    file.prefetch([(0, 5), (None, -1)])
    file.close()
    print(buffer, data, count)


def of_a_file(file: flatout.RemoteFile) -> None:
    with file:
        data: bytes = file.read(5) + file.read() + file.readall() + file.readline() + file.readuntil(b";")
        count: int = file.readinto(bytearray(5)) + file.seek(0, 2) + file.tell() + file.size
        buffer: flatout.Buffer = file.pread(0, 5)
        count += file.preadinto(0, bytearray(5))
        file.prefetch([(0, 5)])
        print(data, count, buffer, file.name, file.mode, file.etag, file.stats, file.readable(), file.seekable())
        lines: list[bytes] = [line for line in file]
        print(lines)
        file.close()
    if file.closed:
        file.write(b"")


def of_a_client_that_writes(client: flatout.Client) -> None:
    options: flatout.WriteOptions = {"content_type": "a/b", "metadata": {"k": "v"}, "overwrite": False}
    info: flatout.Info = client.write(URL, b"1", **options)
    infos: list[flatout.Info] = [client.upload("file", URL, progress=True), client.copy(URL, URL), client.move(URL, URL)]
    infos += client.upload_many([(pathlib.Path("file"), URL)], storage_class="IA")
    for outcome in client.upload_many([("file", URL)], return_exceptions=True):
        print(outcome.hint if isinstance(outcome, flatout.FlatoutError) else outcome.etag)
    client.delete(URL, if_match=info.etag)
    client.delete_many(infos)
    failed: list[flatout.FlatoutError | None] = client.delete_many([URL], return_exceptions=True)
    print(failed, flatout.AlreadyExists)
    with client.open(URL, "wb", **options) as file:
        of_a_writer(file)
    with client.open(URL, "a", encoding="utf-8") as text:
        print("text", file=text)
        text.abort()
    told: flatout.Info | None = text.info
    with client.open(URL, "r") as lines:
        print(told, lines.readlines())


def of_a_writer(file: flatout.RemoteWriter) -> None:
    count: int = file.write(b"1") + file.tell()
    info: flatout.Info | None = file.info
    print(count, info, file.name, file.mode, file.writable())
    file.cancel()
    file.abort()
    file.close()
    if file.closed:
        file.seek(0)
    if file.closed:
        file.readinto(bytearray(1))


def of_saved_models(client: flatout.Client) -> None:
    raw = RawTensor("BF16", (2,), bytearray(4))
    info: flatout.Info = flatout.safetensors.save_file({"a": raw}, URL, {"format": "np"}, client=client, tags={"k": "v"})
    filled: list[tuple[str, object]] = list(stream_tensors(URL, into={"a": raw}, client=client))
    urls: list[str] = flatout.safetensors.save_model({"a": raw}, "s3://bucket/model/", max_shard_size=1 << 30)
    print(info, urls, filled)


async def of_an_async_writer(client: flatout.AsyncClient) -> None:
    info: flatout.Info = await client.write(URL, bytearray(1), tags={"k": "v"})
    infos: list[flatout.Info] = [await client.upload("file", URL), await client.copy(URL, URL), await client.move(URL, URL)]
    infos += await client.upload_many([("file", URL)])
    outcomes: list[flatout.Info | flatout.FlatoutError] = await client.upload_many([("file", URL)], return_exceptions=True)
    await client.delete(URL)
    gone: list[None] = await client.delete_many([URL])
    async with await client.open(URL, "wb", if_match="e") as file:
        count: int = await file.write(b"1") + file.tell()
        told: flatout.Info | None = file.info
        print(count, told, file.name, file.closed)
        await file.abort()
        await file.aclose()
    writers: type[flatout.AsyncWriter] = flatout.AsyncWriter
    print(info, outcomes, gone, writers, flatout.RemoteWriter, flatout.TextWriter)


def of_the_functions(client: flatout.Client) -> None:
    made: flatout.Info = flatout.write(URL, b"1", client=client)
    made = flatout.upload("file", URL, content_type="a/b")
    many: list[flatout.Info] = flatout.upload_many([("file", URL)])
    many += [flatout.copy(URL, URL), flatout.move(URL, URL)]
    flatout.delete(URL)
    flatout.delete_many(many)
    with flatout.open(URL, "xb", content_type="a/b") as new:
        new.write(b"1")
    with flatout.open(URL, "w", client=client) as text:
        text.write("1")
    print(made)
    progress = flatout.Progress()
    buffer: flatout.Buffer = flatout.read(URL, 0, 10, progress=progress, client=client)
    done: tuple[int, int | None, float, float] = (progress.done, progress.total, progress.elapsed, progress.rate)
    count: int = flatout.readinto(URL, bytearray(5), -5)
    parts: list[flatout.Buffer] = flatout.read_ranges(URL, [(0, 5)])
    counts: list[int] = flatout.read_ranges(URL, [(0, 5)], out=[bytearray(5)])
    for index, each in flatout.read_many([URL]):
        count += index + len(each)
    for _, result in flatout.read_many([URL], return_exceptions=True):
        print(result if isinstance(result, Exception) else result.decode())
    count += flatout.download(URL, "file")
    counts += flatout.download_many([(URL, "file")])
    outcomes: list[int | flatout.FlatoutError] = flatout.download_many([(URL, "file")], return_exceptions=True)
    with flatout.open(URL, version_id="v") as file:
        print(file.read())
    names = [entry.key for entry in flatout.ls("s3://bucket/")] + flatout.buckets()
    for page in flatout.ls_pages("s3://bucket/"):
        names += [entry.key for entry in page]
    print(done, progress.is_over, progress.limited_by, count, parts, outcomes, flatout.stat(URL), flatout.exists(URL))
    print(flatout.presign(URL, expires=60), flatout.__version__, flatout.verbs.read(URL), flatout.io.RemoteFile)
    of_a_buffer(buffer)


async def of_asyncio() -> None:
    async with flatout.AsyncClient(parallel=8) as client:
        buffer: flatout.Buffer = await client.read(URL, 0, 5)
        count: int = await client.readinto(URL, bytearray(5), 0, 5)
        parts: list[flatout.Buffer] = await client.read_ranges(URL, [(0, 5)])
        counts: list[int] = await client.read_ranges(URL, [(0, 5)], out=[bytearray(5)])
        many: flatout.AsyncReadMany[flatout.Buffer] = client.read_many([URL])
        async with many:
            async for index, each in many:
                count += index + len(each)
        await many.aclose()
        async for _, result in client.read_many([URL], return_exceptions=True):
            print(result.hint if isinstance(result, flatout.FlatoutError) else len(result))
        count += await client.download(URL, "file")
        counts += await client.download_many([(URL, "file")])
        outcomes: list[int | flatout.FlatoutError]
        outcomes = await client.download_many([(URL, "file")], return_exceptions=True)
        info: flatout.Info = await client.stat(URL)
        names = [entry.key for entry in await client.ls("s3://bucket/")] + await client.buckets()
        async for page in client.ls_pages("s3://bucket/"):
            names += [entry.key for entry in page]
        print(buffer, parts, outcomes, info, names, await client.exists(URL), await client.presign(URL))
        await of_an_async_file(await client.open(URL))
        again = flatout.aio.AsyncClient(client.client)
        await again.aclose()


async def of_an_async_file(file: flatout.AsyncFile) -> None:
    async with file:
        data: bytes = await file.read(5)
        count: int = await file.readinto(bytearray(5)) + file.seek(0) + file.tell() + file.size
        buffer: flatout.Buffer = await file.pread(0, 5)
        count += await file.preadinto(0, bytearray(5))
        file.prefetch([(0, 5)])
        print(data, count, buffer, file.name, file.etag, file.closed)
        await file.aclose()


def of_errors() -> None:
    try:
        of_the_functions(flatout.default_client())
    except (flatout.NotFound, flatout.AccessDenied, flatout.Timeout, flatout.NetworkError, flatout.Throttled) as error:
        print(error.errno, error.filename)
    except (flatout.Untrusted, flatout.ObjectChanged, flatout.Corrupt, flatout.LocalError) as error:
        print(error.strerror)
    except (flatout.UsageError, flatout.Unsupported, flatout.Cancelled, flatout.InternalError) as error:
        print(error.hint)
    except flatout.errors.FlatoutError as error:
        print(error.message)


def of_models() -> None:
    tensors = load_file(URL, framework="np")
    tensors |= load_model("s3://bucket/model/")
    with safe_open(URL, framework="pt", device="cpu") as model:
        names: list[str] = model.keys() + model.offset_keys()
        metadata: dict[str, str] | None = model.metadata()
        shape: list[int] = model.get_shape(names[0])
        kind: str = model.get_dtype(names[0])
        tensor = model.get_tensor(names[0])
        part = model.get_slice(names[0])
        print(part[1:5], part.get_shape(), part.get_dtype(), metadata, shape, kind, tensor)
    for name, each in stream_tensors(URL, order="names", select=lambda name: True, memory_limit=1 << 20):
        if isinstance(each, RawTensor):
            print(name, each.dtype, each.shape, each.data)
    try:
        flatout.safetensors.load_file(URL)
    except (flatout.safetensors.InvalidSafetensors, flatout.safetensors.UnknownTensor) as error:
        print(error.cause, tensors)
    loaded = flatout.compat.oss.read_remote_model("key").read()
    when: int = flatout.compat.oss.get_remote_model_mmtime("key")
    print(loaded, when, flatout.compat.oss.list_remote_models((".ckpt",)))


def of_oss_connectors(endpoint: str) -> None:
    checkpoint = flatout.compat.oss.OssCheckpoint(endpoint, cred_path="credentials", config_path="config.json")
    with checkpoint.reader(URL) as reader, checkpoint.writer(URL) as writer:
        writer.write(reader.read())
    models = flatout.compat.oss.OssModelConnector(endpoint, region="cn-hangzhou")
    models.prepare_directory(URL, "llama", libc_hook=False)
    sizes: list[int | None] = [info.size for info in models.list("bucket", "llama/", fast=True)]
    with models.open(URL, binary=False) as text:
        print(text.read(), sizes)
    models.close()
    files = flatout.compat.oss.OssSafetensor(endpoint)
    files.save_file(files.load_file(URL, device="cpu"), URL, {"format": "pt"})
    with files.safe_open(URL) as model:
        print(model.keys(), flatout.compat.oss.OssModel(endpoint))
    item = flatout.compat.oss.DataObject("/bucket/key", b"", "label")
    for name, label in flatout.compat.oss.imagenet_manifest_parser(item.copy()):
        print(name, label, item.key, item.size, item.label, item.writable())
    images = flatout.compat.oss.OssMapDataset.from_prefix(URL, endpoint, transform=len)
    stream = flatout.compat.oss.OssIterableDataset.from_objects([URL], endpoint, cred_provider=object())
    system = flatout.compat.oss.OssDCPFileSystem(endpoint)
    print(len(images), images[0], len(stream), system.reader(URL), system.writer(URL))
    for refused in (item.write, item.writelines, item.truncate):
        print(refused)


if __name__ == "__main__":
    for each in clients():
        of_a_client(each)
    asyncio.run(of_asyncio())
    print(fresh().expires)
