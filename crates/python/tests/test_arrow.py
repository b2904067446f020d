"""Arrow, pandas, DuckDB and UPath over Flatout: what they read is what was written."""

import pickle

import duckdb
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from upath import UPath

import flatout
import origins
from flatout.arrow import FlatoutHandler, arrow_fs
from flatout.fsspec import S3FileSystem

ROWS = 200_000


def table(part):
    numbers = np.arange(ROWS, dtype="int64") + part * ROWS
    return pa.table(
        {
            "number": numbers,
            "noise": np.random.default_rng(part).random(ROWS),
            "text": [f"row {n % 97}" for n in numbers],
        }
    )


@pytest.fixture(scope="module", params=["serve", "minio"])
def lake(request, tmp_path_factory):
    return make_lake(request.getfixturevalue(request.param), tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def oss_lake(serve, tmp_path_factory):
    """MinIO speaks no OSS."""
    return make_lake(serve, tmp_path_factory.mktemp("lake"))


def make_lake(origin, folder):
    """A bucket with a table, and the same in parts by year: the bucket's name, its origin and the table."""
    name = origins.new_name()
    origin.s3.create_bucket(Bucket=name)
    for part, year in enumerate((2025, 2026)):
        file = folder / f"{year}.parquet"
        pq.write_table(table(part), file, row_group_size=ROWS // 4)
        origin.s3.upload_file(str(file), name, f"lake/year={year}/part.parquet")
    origin.s3.put_object(Bucket=name, Key="table.csv", Body=b"a,b\n1,2\n3,4\n")
    origin.s3.put_object(Bucket=name, Key="empty", Body=b"")
    return Lake(origin, name)


class Lake:
    def __init__(self, origin, name):
        self.origin, self.name = origin, name
        self.options = {"endpoint_url": origin.endpoint}
        self.client = flatout.Client(**self.options)
        self.path = f"{name}/lake/year=2025/part.parquet"

    def file_system(self, kind):
        if kind == "arrow_fs":
            return arrow_fs(self.client)
        return pa.fs.PyFileSystem(pa.fs.FSSpecHandler(S3FileSystem(**self.options, skip_instance_cache=True)))


both_schemes = pytest.mark.parametrize("scheme", ["flatout", "flatout+s3"])
both_kinds = pytest.mark.parametrize("kind", ["arrow_fs", "fsspec"])


@both_kinds
def test_parquet_is_read_whole_and_by_columns(lake, kind):
    fs = lake.file_system(kind)
    assert pq.read_table(lake.path, filesystem=fs, partitioning=None).equals(table(0))
    column = pq.read_table(lake.path, columns=["noise"], filesystem=fs, partitioning=None)
    assert column.equals(table(0).select(["noise"]))
    groups = pq.ParquetFile(lake.path, filesystem=fs)
    assert groups.num_row_groups == 4
    assert groups.read_row_group(2, columns=["number"])["number"][0].as_py() == ROWS // 2


@both_kinds
def test_a_dataset_of_parts_is_filtered(lake, kind):
    data = ds.dataset(f"{lake.name}/lake", filesystem=lake.file_system(kind), format="parquet", partitioning="hive")
    assert len(data.files) == 2 and data.count_rows() == 2 * ROWS
    got = data.to_table(columns=["number"], filter=ds.field("year") == 2026)
    assert got["number"].to_pylist() == list(range(ROWS, 2 * ROWS))


@both_kinds
def test_infos_are_those_of_the_tree(lake, kind):
    fs = lake.file_system(kind)
    File, Folder, Nothing = pa.fs.FileType.File, pa.fs.FileType.Directory, pa.fs.FileType.NotFound
    asked = [lake.path, f"{lake.name}/lake", lake.name, f"{lake.name}/none", f"{lake.name}/empty"]
    told = fs.get_file_info(asked)
    assert [info.type for info in told] == [File, Folder, Folder, Nothing, File]
    assert told[4].size == 0 and told[0].size > 1000 and told[0].mtime is not None
    selected = fs.get_file_info(pa.fs.FileSelector(lake.name, recursive=True))
    types = {info.path.removeprefix(f"{lake.name}/"): info.type for info in selected}
    assert types == {
        "empty": File,
        "table.csv": File,
        "lake": Folder,
        "lake/year=2025": Folder,
        "lake/year=2026": Folder,
        "lake/year=2025/part.parquet": File,
        "lake/year=2026/part.parquet": File,
    }
    shallow = fs.get_file_info(pa.fs.FileSelector(lake.name))
    assert {info.base_name: info.type for info in shallow} == {"empty": File, "table.csv": File, "lake": Folder}
    assert fs.get_file_info(pa.fs.FileSelector(f"{lake.name}/none", allow_not_found=True)) == []
    with pytest.raises(FileNotFoundError):
        fs.get_file_info(pa.fs.FileSelector(f"{lake.name}/none"))


@both_kinds
def test_files_are_read_as_arrow_reads(lake, kind):
    fs = lake.file_system(kind)
    with fs.open_input_file(f"{lake.name}/table.csv") as file:
        assert file.size() == 12 and file.read_at(3, 4) == b"1,2" and file.seek(-4, 2) == 8 and file.read() == b"3,4\n"
        assert file.read_at(100, 10) == b"4\n" and file.read_at(100, 50) == b""
    with fs.open_input_stream(f"{lake.name}/table.csv", compression=None) as stream:
        assert stream.read() == b"a,b\n1,2\n3,4\n"
    with fs.open_input_file(f"{lake.name}/empty") as file:
        assert file.size() == 0 and file.read() == b""
    with pytest.raises(FileNotFoundError):
        fs.open_input_file(f"{lake.name}/none").read()


@both_kinds
def test_arrow_writes_copies_and_deletes(lake, kind):
    fs, at = lake.file_system(kind), f"{lake.name}/written-{kind.replace(' ', '-')}"
    written = table(3)
    with fs.open_output_stream(f"{at}/a.parquet") as stream:
        pq.write_table(written, stream)
    assert pq.read_table(f"{at}/a.parquet", filesystem=fs).equals(written)
    with fs.open_output_stream(f"{at}/log.txt", compression=None) as stream:
        stream.write(b"one ")
    with fs.open_append_stream(f"{at}/log.txt", compression=None) as stream:
        stream.write(b"two")
    with fs.open_input_stream(f"{at}/log.txt") as stream:
        assert stream.read() == b"one two"
    fs.create_dir(f"{at}/folder")
    ds.write_dataset(written, f"{at}/set", filesystem=fs, format="parquet", partitioning=["text"], existing_data_behavior="delete_matching")
    assert ds.dataset(f"{at}/set", filesystem=fs, format="parquet", partitioning=["text"]).count_rows() == ROWS
    fs.copy_file(f"{at}/log.txt", f"{at}/copy.txt")
    fs.move(f"{at}/copy.txt", f"{at}/moved.txt")
    fs.move(f"{at}/set", f"{at}/other")
    types = fs.get_file_info([f"{at}/copy.txt", f"{at}/moved.txt", f"{at}/set", f"{at}/other"])
    assert [info.type for info in types] == [pa.fs.FileType.NotFound, pa.fs.FileType.File, pa.fs.FileType.NotFound, pa.fs.FileType.Directory]
    fs.delete_file(f"{at}/moved.txt")
    for gone in (lambda: fs.delete_file(f"{at}/moved.txt"), lambda: fs.move(f"{at}/moved.txt", f"{at}/x")):
        with pytest.raises(FileNotFoundError):
            gone()
    fs.delete_dir_contents(f"{at}/other", missing_dir_ok=True)
    fs.delete_dir_contents(f"{at}/other", missing_dir_ok=True)
    fs.delete_dir(at)
    assert fs.get_file_info(at).type == pa.fs.FileType.NotFound


def test_what_arrow_must_not_do_is_refused(lake):
    fs = lake.file_system("arrow_fs")
    for refused in (lambda: fs.delete_dir_contents("", accept_root_dir=True), lambda: fs.delete_dir("")):
        with pytest.raises(ValueError, match="every bucket of the account"):
            refused()
    for refused in (lambda: fs.open_output_stream(lake.name), lambda: fs.copy_file(f"{lake.name}/table.csv", lake.name)):
        with pytest.raises(ValueError, match="this is no object"):
            refused()
    assert fs.get_file_info(f"{lake.name}/table.csv").size == 12


def test_arrow_stores_headers_and_metadata(lake):
    fs = lake.file_system("arrow_fs")
    with fs.open_output_stream(f"{lake.name}/described", metadata={"Content-Type": "a/b", "k": "v"}) as stream:
        stream.write(b"1")
    info = lake.client.stat(f"s3://{lake.name}/described")
    assert (info.content_type, info.metadata) == ("a/b", {"k": "v"})
    fs.delete_file(f"{lake.name}/described")


def test_paths_may_carry_the_scheme_and_no_other(lake):
    fs = arrow_fs(lake.client)
    for scheme in ("s3", "flatout", "flatout+s3"):
        assert fs.normalize_path(f"{scheme}://{lake.path}/") == lake.path
    assert pq.read_metadata(f"s3://{lake.path}", filesystem=fs).num_rows == ROWS
    with pytest.raises(flatout.UsageError):
        fs.normalize_path("oss://bucket/key")
    for scheme in ("oss", "flatoutoss", "flatout+oss"):
        assert arrow_fs(scheme="oss").normalize_path(f"{scheme}://b/k") == "b/k"
    with pytest.raises(flatout.UsageError):
        arrow_fs(scheme="gs")


def test_a_handler_is_its_client_and_scheme(lake):
    fs = arrow_fs(lake.client)
    assert fs == arrow_fs(flatout.Client(**lake.options)) and fs != arrow_fs(lake.client, scheme="oss")
    assert fs.type_name == "py::flatout+s3"
    # A client with a password is equal to none but itself.
    proxied = flatout.Client(proxy="http://user:SESAME@127.0.0.1:1")
    assert FlatoutHandler(proxied) == FlatoutHandler(proxied) != fs.handler
    assert fs.handler != FlatoutHandler(proxied)
    again = pickle.loads(pickle.dumps(fs))
    assert again == fs and isinstance(again.handler, FlatoutHandler)
    assert pq.read_metadata(lake.path, filesystem=again).num_rows == ROWS


def test_oss_is_read_by_its_own_protocol(serve, oss_lake):
    fs = arrow_fs(flatout.Client(oss_endpoint=serve.endpoint, oss_region="cn-hangzhou"), scheme="oss")
    assert pq.read_table(oss_lake.path, filesystem=fs, partitioning=None).equals(table(0))
    options = {"endpoint": serve.endpoint, "oss_region": "cn-hangzhou"}
    numbers = pd.read_parquet(f"flatoutoss://{oss_lake.path}", columns=["number"], storage_options=options)["number"]
    assert numbers.sum() == sum(range(ROWS))
    assert UPath(f"flatout+oss://{oss_lake.name}/table.csv", **options).read_bytes() == b"a,b\n1,2\n3,4\n"
    assert UPath(f"flatoutoss://{oss_lake.name}/table.csv", **options).read_bytes() == b"a,b\n1,2\n3,4\n"


def test_a_file_of_a_listing_is_opened_without_asking(started):
    bucket = Bucket(started())
    bucket.put("dir/data", origins.noise(1 << 20))
    fs = arrow_fs(flatout.Client(endpoint_url=bucket.origin.endpoint))
    (info,) = fs.get_file_info(pa.fs.FileSelector(f"{bucket.name}/dir"))
    before = len(bucket.origin.requests())
    with fs.open_input_file(info.path) as file:
        assert file.size() == 1 << 20 and len(file.read_at(100, 5000)) == 100
    assert [each["method"] for each in bucket.origin.requests()[before:]] == ["GET"]


def test_a_file_replaced_after_it_was_told_of_fails_once(lake):
    bucket = Bucket(lake.origin)
    path = bucket.put("dir/data", b"old old old")
    fs = arrow_fs(lake.client)
    fs.get_file_info(path)
    bucket.put("dir/data", b"new and longer")
    with fs.open_input_file(path) as file:
        assert file.size() == 11
        with pytest.raises(OSError, match="version|changed|ETag|replaced"):
            file.read()
    with fs.open_input_file(path) as file:
        assert file.size() == 14 and file.read() == b"new and longer"


class Bucket:
    def __init__(self, origin):
        self.origin, self.name = origin, origins.new_name()
        origin.s3.create_bucket(Bucket=self.name)

    def put(self, key, body):
        self.origin.s3.put_object(Bucket=self.name, Key=key, Body=body)
        return f"{self.name}/{key}"


# pandas


@both_schemes
def test_pandas_reads_parquet_and_csv(lake, scheme):
    url = f"{scheme}://{lake.path}"
    frame = pd.read_parquet(url, storage_options=lake.options)
    assert frame["number"].tolist() == list(range(ROWS)) and frame["text"][98] == "row 1"
    column = pd.read_parquet(url, columns=["noise"], storage_options=lake.options)
    assert column["noise"].tolist() == table(0)["noise"].to_pylist()
    csv = pd.read_csv(f"{scheme}://{lake.name}/table.csv", storage_options=lake.options)
    assert csv.to_dict("list") == {"a": [1, 3], "b": [2, 4]}


def test_one_column_is_not_the_whole_file(started, tmp_path):
    bucket, whole = Bucket(started()), tmp_path / "wide.parquet"
    columns = {f"c{number}": np.random.default_rng(number).random(100_000) for number in range(20)}
    pq.write_table(pa.table(columns), whole, row_group_size=50_000, compression="none")
    path, bytes_whole = bucket.put("wide.parquet", whole.read_bytes()), whole.stat().st_size
    before = len(bucket.origin.requests())
    got = pd.read_parquet(
        f"flatout://{path}", columns=["c7"], storage_options={"endpoint_url": bucket.origin.endpoint}
    )
    assert np.array_equal(got["c7"].to_numpy(), columns["c7"])
    asked = bucket.origin.requests()[before:]
    fetched = sum(each["bytes"] for each in asked if each["method"] == "GET")
    assert fetched < bytes_whole / 5 and len(asked) <= 8, f"{fetched} of {bytes_whole} bytes in {len(asked)} requests"


# DuckDB


@both_schemes
def test_duckdb_reads_through_the_file_system(lake, scheme):
    connection = duckdb.connect()
    connection.register_filesystem(fsspec.filesystem(scheme, **lake.options))
    (total,) = connection.execute(f"select sum(number) from read_parquet('{scheme}://{lake.path}')").fetchone()
    assert total == sum(range(ROWS))
    rows = connection.execute(
        f"select year, count(*) from read_parquet('{scheme}://{lake.name}/lake/*/*.parquet', hive_partitioning=true)"
        " group by year order by year"
    ).fetchall()
    assert rows == [(2025, ROWS), (2026, ROWS)]
    assert connection.execute(f"select sum(a) from read_csv('{scheme}://{lake.name}/table.csv')").fetchone() == (4,)


# UPath


@both_schemes
def test_upath_is_a_path_with_a_bucket_for_its_drive(lake, scheme):
    root = UPath(f"{scheme}://{lake.name}", **lake.options)
    path = root / "lake" / "year=2025" / "part.parquet"
    assert str(path) == f"{scheme}://{lake.path}" and path.name == "part.parquet" and path.suffix == ".parquet"
    assert path.drive == lake.name and path.parts[0] == f"{lake.name}/"
    assert path.parent.parent.parent == root == root.parent
    assert type(path).__name__ == "FlatoutS3Path"
    assert type(UPath("flatout://bucket/key")).__name__ == "FlatoutS3Path"
    oss = {"flatout": "flatoutoss", "flatout+s3": "flatout+oss"}[scheme]
    other = UPath(f"{oss}://bucket/folder/key")
    assert type(other).__name__ == "FlatoutOssPath" and other.drive == "bucket"
    for again in (UPath(other), UPath(other.parent, "key"), other.parent / "key", pickle.loads(pickle.dumps(other))):
        assert again == other and str(again) == f"{oss}://bucket/folder/key"


@both_schemes
def test_upath_reads_and_writes(lake, scheme):
    root = UPath(f"{scheme}://{lake.name}", **lake.options)
    assert (root / "table.csv").read_text() == "a,b\n1,2\n3,4\n"
    assert (root / "table.csv").stat().st_size == 12 and (root / "lake").is_dir() and not (root / "none").exists()
    assert sorted(path.name for path in root.iterdir()) == ["empty", "lake", "table.csv"]
    assert sorted(path.parent.name for path in root.glob("**/*.parquet")) == ["year=2025", "year=2026"]
    assert sorted(path.parent.name for path in root.rglob("part.parquet")) == ["year=2025", "year=2026"]
    with (root / "table.csv").open("rb") as file:
        assert file.readline() == b"a,b\n"
    assert pickle.loads(pickle.dumps(root / "table.csv")).read_bytes() == b"a,b\n1,2\n3,4\n"
    (root / "new" / "text").write_text("ä")
    assert (root / "new" / "text").read_text() == "ä"
    (root / "new" / "text").rename(root / "other")
    assert (root / "other").read_bytes() == "ä".encode() and not (root / "new").exists()
    (root / "other").unlink()
    assert not (root / "other").exists()
