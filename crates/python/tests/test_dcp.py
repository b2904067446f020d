"""flatout.torch.dcp: checkpoints of torch.distributed, by one process and by several."""

import os
import pickle
import signal
import subprocess
import sys

import pytest

import flatout
import origins

# scripts/python.sh runs this with the interpreter that has it.
torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402

from flatout.torch.dcp import Reader, Writer, gc_old, latest  # noqa: E402
from test_writes import BOTH, uploads  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is unavailable or uninitialized")


@pytest.fixture
def client(serve):
    return flatout.Client(**serve.settings)


@pytest.fixture
def bucket(serve):
    return origins.Bucket(serve, origins.new_name())


def state(value=1.0):
    chance = torch.Generator().manual_seed(int(value * 8))
    linear = torch.randn(700, 300, generator=chance)
    return {
        "model": {
            "linear": linear,
            "transposed": torch.randn(40, 70, generator=chance).t(),
            "slice": linear[10:20, ::3],
            "large": torch.randn(3_000_001, generator=chance),
            "half": torch.randn(33, generator=chance).to(torch.bfloat16),
            "complex": torch.randn(9, dtype=torch.complex128, generator=chance).conj(),
            "bools": torch.randn(1000, generator=chance) > 0,
            "fp8": torch.randn(64, generator=chance).to(torch.float8_e4m3fn),
            "scalar": torch.tensor(float(value)),
            "nothing": torch.empty(0, 7),
        },
        "step": int(value * 100),
        "notes": {"text": f"of {value}"},
    }


def empty():
    """The same shapes, of nothing."""
    blank = state()
    for name, tensor in blank["model"].items():
        blank["model"][name] = torch.zeros_like(tensor)
    return {**blank, "step": -1, "notes": {"text": ""}}


def check_same(found, wanted):
    assert found["step"] == wanted["step"] and found["notes"] == wanted["notes"]
    for name, tensor in wanted["model"].items():
        mine = found["model"][name]
        assert mine.dtype == tensor.dtype and torch.equal(mine.view(torch.uint8) if name == "fp8" else mine, tensor.view(torch.uint8) if name == "fp8" else tensor), name


def loaded(url, client, into=None):
    into = empty() if into is None else into
    dcp.load(into, storage_reader=Reader(url, client=client))
    return into


def names(client, url):
    return sorted(info.name for info in client.ls(url + "/", recursive=True))


@BOTH
@pytest.mark.parametrize("single", [True, False])
def test_what_is_saved_is_loaded(client, bucket, scheme, single):
    url = bucket.url("run/step-1", scheme)
    dcp.save(state(), storage_writer=Writer(url, single_file_per_rank=single, client=client))
    check_same(loaded(url, client), state())
    assert len(names(client, url)) == (2 if single else 1 + 12)
    # A part of it, and what it lacks.
    some = {"model": {"linear": torch.zeros(700, 300)}}
    assert torch.equal(loaded(url, client, some)["model"]["linear"], state()["model"]["linear"])
    with pytest.raises(dcp.api.CheckpointException):
        loaded(url, client, {"model": {"lacks": torch.zeros(1)}})


def test_the_id_of_a_checkpoint_is_its_url(client, bucket):
    writer, reader = Writer(client=client), Reader(client=client)
    for step in (1.0, 2.0):
        dcp.save(state(step), checkpoint_id=bucket.url(f"run/{step}"), storage_writer=writer)
    for step in (2.0, 1.0):
        into = empty()
        dcp.load(into, checkpoint_id=bucket.url(f"run/{step}"), storage_reader=reader)
        check_same(into, state(step))
    for wrong in ("/tmp/run", "run", "https://host/run"):
        with pytest.raises(flatout.UsageError, match="URL of a bucket"):
            Writer(wrong)
        with pytest.raises(flatout.UsageError, match="URL of a bucket"):
            Reader(wrong)
        assert not Writer.validate_checkpoint_id(wrong) and not Reader.validate_checkpoint_id(wrong)
    with pytest.raises(dcp.api.CheckpointException, match="no URL was given"):
        dcp.save(state(), storage_writer=Writer(client=client))
    with pytest.raises(dcp.api.CheckpointException, match="no URL was given"):
        loaded(None, client)


def test_pytorch_reads_what_we_write_and_we_read_what_it_writes(client, bucket, tmp_path):
    ours, theirs = bucket.url("ours"), tmp_path / "theirs"
    dcp.save(state(), storage_writer=Writer(ours, client=client))
    local = tmp_path / "ours"
    local.mkdir()
    for info in client.ls(ours + "/"):
        client.download(info.url, local / info.name)
    into = empty()
    dcp.load(into, storage_reader=dcp.FileSystemReader(local))
    check_same(into, state())
    dcp.save(state(3.0), storage_writer=dcp.FileSystemWriter(theirs, thread_count=3))
    client.upload_many((path, bucket.url(f"theirs/{path.name}")) for path in theirs.iterdir())
    check_same(loaded(bucket.url("theirs"), client), state(3.0))


def test_tensors_of_another_type_or_layout_are_filled(client, bucket):
    url = bucket.url("run")
    dcp.save(state(), storage_writer=Writer(url, client=client))
    wanted = state()["model"]
    wide = torch.zeros(1400, 300)
    into = {
        "model": {
            "linear": wide[::2],
            "transposed": torch.zeros(70, 40),
            "large": torch.zeros(3_000_001, dtype=torch.float64),
            "half": torch.zeros(33),
        }
    }
    loaded(url, client, into)
    for name, tensor in into["model"].items():
        assert torch.equal(tensor, wanted[name].to(tensor.dtype)), name
    assert not wide[1::2].any()
    with pytest.raises(dcp.api.CheckpointException):
        loaded(url, client, {"model": {"linear": torch.zeros(700, 301)}})


def test_a_checkpoint_replaces_another_whole(client, bucket):
    url = bucket.url("run")
    dcp.save(state(1.0), storage_writer=Writer(url, client=client))
    before = names(client, url)
    dcp.save(state(2.0), storage_writer=Writer(url, client=client))
    after = names(client, url)
    assert len(before) == len(after) == 2 and set(before) & set(after) == {".metadata"}
    check_same(loaded(url, client), state(2.0))
    with pytest.raises(dcp.api.CheckpointException, match="a checkpoint is there already"):
        dcp.save(state(3.0), storage_writer=Writer(url, overwrite=False, client=client))
    check_same(loaded(url, client), state(2.0))

    class Broken:
        def __reduce__(self):
            raise RuntimeError("cannot be pickled")

    with pytest.raises(dcp.api.CheckpointException, match="cannot be pickled"):
        dcp.save({**state(3.0), "broken": Broken()}, storage_writer=Writer(url, client=client))
    check_same(loaded(url, client), state(2.0))
    assert uploads(bucket.origin, url) == []


def test_a_checkpoint_that_is_not_there_is_told(client, bucket):
    url = bucket.url("run")
    with pytest.raises(dcp.api.CheckpointException, match="there is no whole checkpoint"):
        loaded(url, client)
    bucket.put("run/.metadata", pickle.dumps({"other": 1}))
    with pytest.raises(dcp.api.CheckpointException, match="holds dict"):
        loaded(url, client)
    bucket.put("run/.metadata", b"123")
    with pytest.raises(dcp.api.CheckpointException, match="Corrupt.*run/.metadata.*no part of a whole checkpoint: UnpicklingError"):
        loaded(url, client)
    with pytest.raises(dcp.api.CheckpointException, match="no such bucket"):
        loaded("s3://nobody-has-this/run", client)
    dcp.save(state(), storage_writer=Writer(url, client=client))
    (name,) = [name for name in names(client, url) if name != ".metadata"]
    data = bytes(client.read(f"{url}/{name}"))
    client.write(f"{url}/{name}", data[: len(data) // 2])
    with pytest.raises(dcp.api.CheckpointException, match="the object ends before|past|range"):
        loaded(url, client)
    client.delete(f"{url}/{name}")
    with pytest.raises(dcp.api.CheckpointException, match=name):
        loaded(url, client)


def test_a_writer_is_used_again_and_again(client, bucket):
    url, writer = bucket.url("run"), Writer(bucket.url("run"), single_file_per_rank=False, client=client)
    dcp.save(state(1.0), storage_writer=writer)
    before = names(client, url)
    dcp.save(state(2.0), storage_writer=writer)
    assert set(names(client, url)) & set(before) == {".metadata"}
    for broken in ("model.scalar", "step"):

        class Planner(dcp.DefaultSavePlanner):
            def resolve_data(self, item):
                if item.index.fqn == broken:
                    raise RuntimeError("it breaks")
                return super().resolve_data(item)

        with pytest.raises(dcp.api.CheckpointException, match="it breaks"):
            dcp.save(state(3.0), storage_writer=writer, planner=Planner())
        check_same(loaded(url, client), state(2.0))
    assert type(pickle.loads(pickle.dumps(writer))) is Writer and pickle.loads(pickle.dumps(writer)).url == url


def test_a_plan_of_before_and_ranks_that_do_not_talk_are_refused(client, bucket):
    class Caching(dcp.DefaultSavePlanner):
        """As with enable_plan_caching of PyTorch 2.7."""

        kept = None

        def finish_plan(self, plan):
            Caching.kept = Caching.kept or super().finish_plan(plan)
            return Caching.kept

    url = bucket.url("run")
    dcp.save(state(1.0), storage_writer=Writer(url, client=client), planner=Caching())
    with pytest.raises(dcp.api.CheckpointException, match="plan of an earlier save"):
        dcp.save(state(2.0), storage_writer=Writer(url, client=client), planner=Caching())
    check_same(loaded(url, client), state(1.0))
    with pytest.raises(flatout.Unsupported, match="use_collectives"):
        Writer(url, client=client).set_up_storage_writer(True, rank=0, use_collectives=False)


def test_a_planner_may_load_through_tensors_of_its_own(client, bucket):
    class Materialising(dcp.DefaultLoadPlanner):
        """As the documentation of LoadPlanner shows."""

        def resolve_tensor(self, item):
            return torch.full_like(super().resolve_tensor(item), -1)

        def commit_tensor(self, item, tensor):
            super().resolve_tensor(item).copy_(tensor)

    url, into = bucket.url("run"), empty()
    dcp.save(state(), storage_writer=Writer(url, client=client))
    with torch.inference_mode():
        dcp.load(into, storage_reader=Reader(url, client=client), planner=Materialising())
    check_same(into, state())


def test_tensors_that_share_memory_are_loaded(client, bucket):
    url, shared = bucket.url("run"), torch.randn(50, 40)
    saved = {"model": {"head": shared, "embedding": shared, "row": shared[3], "other": torch.randn(9)}}
    dcp.save(saved, storage_writer=Writer(url, client=client))
    target = torch.zeros(50, 40)
    into = {"model": {"head": target, "embedding": target, "row": target[3], "other": torch.zeros(9)}}
    loaded(url, client, into)
    assert all(torch.equal(into["model"][name], tensor) for name, tensor in saved["model"].items())


def test_old_checkpoints_go_and_nothing_else(client, bucket):
    run = bucket.url("run")
    kept = [bucket.put(f"run/{name}", b"of others") for name in ("config.json", "step-0/notes.txt", "step-0/__0_0.distcp", "step-9/.metadata")]
    for step in range(4):
        dcp.save(state(1 + step), storage_writer=Writer(f"{run}/step-{step}", client=client))
    # A save that has failed, and one that runs.
    left = bucket.put(f"run/step-4/__0_0-{'a' * 32}.distcp", b"left")
    assert latest(run, client=client) == f"{run}/step-3" and latest(bucket.url("none"), client=client) is None
    assert gc_old(run, 4, client=client) == gc_old(run, 5, client=client) == gc_old(run, 100, client=client) == []
    assert gc_old(run, 3, client=client) == [f"{run}/step-0"]
    assert gc_old(run + "/", 3, client=client) == []
    assert gc_old(run, 2, client=client) == [f"{run}/step-1"]
    assert all(client.exists(url) for url in [*kept, left])
    for step in (2, 3):
        check_same(loaded(f"{run}/step-{step}", client), state(1 + step))
    assert gc_old(run, 2, unfinished_after=-60, client=client) == []
    assert not client.exists(left) and all(client.exists(url) for url in kept)
    check_same(loaded(f"{run}/step-3", client), state(4))
    assert gc_old(run, 0, client=client) == [f"{run}/step-2", f"{run}/step-3"]
    assert sorted(info.url for info in client.ls(run + "/", recursive=True)) == sorted(kept)
    # A copy is somebody else's, with or without what was noted at its .metadata.
    dcp.save(state(5), storage_writer=Writer(f"{run}/step-10", client=client))
    dcp.save(state(6), storage_writer=Writer(f"{run}/step-9", client=client))
    for info in client.ls(f"{run}/step-9/"):
        client.copy(info.url, f"{run}/best/{info.name}")
        client.write(f"{run}/plain/{info.name}", client.read(info.url))
    assert gc_old(run, 0, unfinished_after=-60, client=client) and gc_old(run, 0, unfinished_after=-60, client=client) == []
    for name in ("best", "plain"):
        check_same(loaded(f"{run}/{name}", client), state(6))
    with pytest.raises(flatout.UsageError, match="keep=-1"):
        gc_old(run, -1, client=client)


RANK = """
import os, signal, sys, traceback
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
import flatout
from flatout.torch.dcp import Reader, Writer

what, url, endpoint, placed, store = sys.argv[1:]
sys.excepthook = lambda *error: (traceback.print_exception(*error), sys.stderr.flush(), os._exit(1))
dist.init_process_group("gloo", init_method="file://" + store, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
rank, ranks = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (ranks,))
client = flatout.Client(endpoint_url=endpoint, retries=2, outage_timeout="2s")
whole = torch.arange(1201 * 803, dtype=torch.float32).view(1201, 803)
placement = {"rows": Shard(0), "columns": Shard(1), "whole": Replicate()}[placed]

def state(factor):
    return {"w": distribute_tensor(whole * factor, mesh, [placement]), "b": torch.full((9,), float(factor)), "step": factor}

if what == "save":
    dcp.save(state(3), storage_writer=Writer(url, client=client))
elif what == "async":
    writer, saving = Writer(client=client), []
    for number in range(1, 5):
        live = state(number)
        saving.append(dcp.async_save(live, checkpoint_id=f"{url}/{number}", storage_writer=writer))
        # Later changes must not reach the checkpoint.
        live["b"].zero_()
        live["w"].zero_()
    [each.result() for each in saving]
elif what == "load":
    into = state(0)
    dcp.load(into, storage_reader=Reader(url, client=client))
    assert torch.equal(into["w"].full_tensor(), whole * 3) and into["step"] == 3 and into["b"].eq(3).all()
else:
    class Killed(Writer):
        def write_data(self, plan, planner):
            done = super().write_data(plan, planner)
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return done
    dcp.save(state(7), storage_writer=Killed(url, client=client))
sys.stdout.flush()
# Gloo of Debian 13 sometimes waits for ever, or aborts, where threads of it are to end.
os._exit(0)
"""


@pytest.fixture
def ranks(tmp_path, serve):
    """Runs RANK in several processes, and returns how they ended."""
    script, running = tmp_path / "rank.py", []
    script.write_text(RANK)

    def run(count, *arguments):
        env, store = {"WORLD_SIZE": str(count), "GLOO_SOCKET_IFNAME": "lo"}, tmp_path / f"ranks-{len(running)}"
        started = [
            subprocess.Popen([sys.executable, script, *arguments, store], env={**os.environ, **env, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for rank in range(count)
        ]
        running.extend(started)
        ends = [(each.communicate(timeout=400)[0].decode(), each.returncode) for each in started]
        return [code for _, code in ends], "\n".join(text for text, _ in ends)

    yield run
    for each in running:
        each.kill()


def test_async_saves_go_on_beside_training_each_to_its_own_url(client, bucket, ranks, serve):
    url = bucket.url("run")
    codes, told = ranks(1, "async", url, serve.url, "whole")
    assert codes == [0], told
    whole = torch.arange(1201 * 803, dtype=torch.float32).view(1201, 803)
    for number in range(1, 5):
        assert len(names(client, f"{url}/{number}")) == 2
        found = loaded(f"{url}/{number}", client, {"w": torch.zeros_like(whole), "b": torch.zeros(9), "step": 0})
        assert torch.equal(found["w"], whole * number) and found["step"] == number and found["b"].eq(number).all()


def test_other_ranks_load_what_these_have_saved(client, bucket, ranks, serve):
    url = bucket.url("run")
    codes, told = ranks(3, "save", url, serve.url, "rows")
    assert codes == [0, 0, 0], told
    assert len(names(client, url)) == 4
    for count, placed in ((2, "rows"), (2, "columns"), (1, "whole")):
        codes, told = ranks(count, "load", url, serve.url, placed)
        assert codes == [0] * count, told
    # A rank says itself why it fails, whatever PyTorch makes of it.
    codes, told = ranks(2, "load", bucket.url("none"), serve.url, "rows")
    assert 0 not in codes and "rank 0: load:" in told and "there is no whole checkpoint" in told, told
    # A rank that is killed when it has sent its part: the checkpoint before is whole.
    codes, told = ranks(2, "killed", url, serve.url, "columns")
    assert codes[1] == -signal.SIGKILL and codes[0] != 0, told
    codes, told = ranks(1, "load", url, serve.url, "whole")
    assert codes == [0], told
    assert uploads(serve, url) == [] and len(names(client, url)) > 4
    assert gc_old(url, 1, unfinished_after=-60, client=client) == [] and len(names(client, url)) == 4
