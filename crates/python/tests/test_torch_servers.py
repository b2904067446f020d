"""flatout.vllm, flatout.sglang and flatout.hf. Of vLLM and SGLang the interfaces alone, as they are published; transformers is real."""

import os
import pathlib
import pickle
import subprocess
import sys
import types

import pytest

import flatout
import origins

# scripts/python.sh runs this with the interpreter that has it.
torch = pytest.importorskip("torch")

import flatout.hf  # noqa: E402
import flatout.sglang  # noqa: E402
import flatout.vllm  # noqa: E402


def weights():
    return {f"layers.{number}.weight": torch.full((300, 500), float(number)) for number in range(4)}


@pytest.fixture
def bucket(serve):
    return origins.Bucket(serve, origins.new_name())


@pytest.fixture
def default(serve, monkeypatch, tmp_path):
    """What a server's processes know of buckets: variables."""
    for name, value in (("FLATOUT_ENDPOINT_URL", serve.url), ("FLATOUT_OSS_ENDPOINT", serve.url), ("FLATOUT_OSS_REGION", "cn-hangzhou"), ("XDG_CACHE_HOME", str(tmp_path / "cache"))):
        monkeypatch.setenv(name, value)
    client = flatout.Client()
    monkeypatch.setattr(flatout.client, "_default", None, raising=False)
    for module in (flatout.hf, flatout.safetensors):
        monkeypatch.setattr(module, "default_client", lambda: client)
    return client


@pytest.fixture
def llama(bucket, default):
    flatout.safetensors.save_model(weights(), bucket.url("llama"), max_shard_size=1_300_000, client=default)
    for name, text in (("config.json", "{}"), ("tokenizer/vocab.txt", "a b"), ("model.bin", "old"), ("original/params.json", "{}")):
        bucket.put(f"llama/{name}", text.encode())
    return bucket.url("llama/")


@pytest.fixture
def vllm(monkeypatch):
    """vLLM's interface for loaders (vllm/model_executor/model_loader/base_loader.py, vllm/config/model.py)."""
    formats = {}

    class BaseModelLoader:
        def __init__(self, load_config):
            self.load_config = load_config

        def load_model(self, model, model_config):
            self.load_weights(model, model_config)
            return model

    class ModelConfig:
        def __init__(self, model, tokenizer=None):
            self.model, self.tokenizer, self.model_weights = model, tokenizer or model, ""
            self.maybe_pull_model_tokenizer_for_runai(self.model, self.tokenizer)

        def maybe_pull_model_tokenizer_for_runai(self, model, tokenizer):
            self.is_upstream = True

    def register_model_loader(name):
        def kept(loader):
            assert issubclass(loader, BaseModelLoader)
            formats[name] = loader
            return loader

        return kept

    modules = {
        "vllm": {},
        "vllm.config": {"ModelConfig": ModelConfig},
        "vllm.model_executor": {},
        "vllm.model_executor.model_loader": {"register_model_loader": register_model_loader},
        "vllm.model_executor.model_loader.base_loader": {"BaseModelLoader": BaseModelLoader},
    }
    for name, has in modules.items():
        module = types.ModuleType(name)
        vars(module).update(has)
        monkeypatch.setitem(sys.modules, name, module)
    return types.SimpleNamespace(formats=formats, ModelConfig=ModelConfig)


class Model:
    def load_weights(self, found):
        self.weights = {name: tensor.clone() for name, tensor in found}


def check_loaded(model):
    assert model.weights.keys() == weights().keys()
    assert all(torch.equal(model.weights[name], tensor) for name, tensor in weights().items())


def config(**options):
    return types.SimpleNamespace(model_loader_extra_config=options, use_tqdm_on_load=False)


@pytest.mark.parametrize("scheme", ["s3", "oss"])
def test_vllm_serves_a_model_of_a_bucket(vllm, llama, scheme):
    flatout.vllm.register()
    flatout.vllm.register()
    url = llama.replace("s3://", f"{scheme}://").rstrip("/")
    model_config = vllm.ModelConfig(url)
    assert model_config.model_weights == url and model_config.model == model_config.tokenizer
    local = pathlib.Path(model_config.model)
    assert sorted(str(path.relative_to(local)) for path in local.rglob("*") if path.is_file()) == ["config.json", "model.safetensors.index.json", "tokenizer/vocab.txt"]
    loader = vllm.formats["flatout"](config(memory_limit=1 << 20))
    loader.download_model(model_config)
    check_loaded(loader.load_model(Model(), model_config))
    # A worker of another machine has neither the folder nor a listing of it.
    check_loaded(loader.load_model(Model(), types.SimpleNamespace(model="/nowhere", model_weights=url)))


def test_vllm_has_the_weights_alone_from_a_bucket(vllm, llama, tmp_path):
    flatout.vllm.register()
    model_config = vllm.ModelConfig(str(tmp_path))
    assert model_config.is_upstream and not model_config.model_weights
    check_loaded(vllm.formats["flatout"](config(weights=llama)).load_model(Model(), model_config))
    with pytest.raises(flatout.UsageError, match="(?s)no URL of a bucket.*--model-loader-extra-config"):
        vllm.formats["flatout"](config()).load_model(Model(), model_config)
    for wrong, told in (({"wieghts": llama}, "(?s)no such option.*weights, distributed"), ({"distributed": "yes"}, "'yes' is no bool"), ({"memory_limit": True}, "True is no int")):
        with pytest.raises(flatout.UsageError, match=told):
            vllm.formats["flatout"](config(**wrong))
    with pytest.raises(flatout.NotFound):
        vllm.ModelConfig(llama.replace("llama", "none"))


def test_vllm_leaves_s3_to_a_streamer_that_is_there(vllm, llama, monkeypatch):
    monkeypatch.setattr(flatout.vllm, "_has_streamer", lambda: True)
    flatout.vllm.register()
    assert vllm.ModelConfig(llama).is_upstream
    assert vllm.ModelConfig(llama.replace("s3://", "oss://")).model_weights


RANK = """
import os, sys, types
import torch, torch.distributed as dist
sys.path.insert(0, sys.argv[3])
from test_torch_servers import Model, check_loaded
from flatout.vllm import checked, weights

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
model = Model()
model.load_weights(weights(sys.argv[1], checked({"distributed": True}, "test"), lambda: dist.group.WORLD, False))
check_loaded(model)
sys.stdout.flush()
# Gloo of Debian 13 sometimes waits for ever, or aborts, where threads of it are to end.
os._exit(0)
"""


def test_ranks_of_a_server_share_what_they_fetch(started, tmp_path):
    serve = started()
    bucket, client = origins.Bucket(serve, origins.new_name()), flatout.Client(**serve.settings)
    flatout.safetensors.save_model(weights(), bucket.url("llama"), client=client)
    before = len(serve.requests())
    command = [sys.executable, "-c", RANK, bucket.url("llama/"), tmp_path / "store", os.path.dirname(__file__)]
    env = {**os.environ, "FLATOUT_ENDPOINT_URL": serve.url, "GLOO_SOCKET_IFNAME": "lo"}
    running = [subprocess.Popen(command, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
    try:
        told = [each.communicate(timeout=400)[0].decode() for each in running]
    finally:
        [each.kill() for each in running]
    assert [each.returncode for each in running] == [0, 0], "\n".join(told)
    sent = sum(line["bytes"] for line in serve.requests()[before:] if line["method"] == "GET")
    assert sent < sum(tensor.nbytes for tensor in weights().values()) + 2 * (512 << 10) + 10_000


def test_sglang_takes_the_loader_as_a_class(llama, monkeypatch):
    class DefaultModelLoader:
        """As published (python/sglang/srt/model_loader/loader.py): options that it does not know it refuses."""

        def __init__(self, load_config):
            assert not load_config.model_loader_extra_config
            self.load_config = load_config

        def load_model(self, *, model_config, device_config):
            model = Model()
            model.load_weights(self._get_all_weights(model_config, model))
            return model

    for name in ("sglang", "sglang.srt", "sglang.srt.model_loader", "sglang.srt.model_loader.loader"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["sglang.srt.model_loader.loader"].DefaultModelLoader = DefaultModelLoader
    try:
        found = flatout.sglang.loader()
        # It goes to the processes of the server.
        assert pickle.loads(pickle.dumps(found)) is found and issubclass(found, DefaultModelLoader)
        local = types.SimpleNamespace(model_path=flatout.hf.local_files(llama))
        check_loaded(found(config(weights=llama)).load_model(model_config=local, device_config=None))
        with pytest.raises(flatout.UsageError, match="no URL of a bucket"):
            found(config()).load_model(model_config=local, device_config=None)
    finally:
        vars(flatout.sglang).pop("Loader", None)


def test_a_folder_of_a_model_is_whole_and_of_one_version(llama, default, bucket, tmp_path):
    first = flatout.hf.local_files(llama, tmp_path)
    assert flatout.hf.local_files(llama.rstrip("/"), tmp_path) == first and os.listdir(tmp_path) == [os.path.basename(first)]
    assert pathlib.Path(first, "config.json").read_text() == "{}"
    bucket.put("llama/config.json", b'{"a": 1}')
    second = flatout.hf.local_files(llama, tmp_path)
    assert second != first and pathlib.Path(second, "config.json").read_text() == '{"a": 1}' and pathlib.Path(first, "config.json").read_text() == "{}"
    with pytest.raises(flatout.NotFound, match="no object lies below"):
        flatout.hf.local_files(llama + "none", tmp_path)
    for wrong in ("llama", "https://host/llama"):
        with pytest.raises(flatout.UsageError, match="no URL of a bucket"):
            flatout.hf.local_files(wrong, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(flatout.LocalError, match="file"):
        flatout.hf.local_files(llama, tmp_path / "file")
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(first), os.path.basename(second), "file"])


def test_transformers_has_a_model_from_a_bucket(default, bucket, tmp_path):
    transformers = pytest.importorskip("transformers")
    settings = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    made = transformers.LlamaForCausalLM(settings)
    made.generation_config.max_length = 7
    made.save_pretrained(tmp_path / "made", max_shard_size="20KB")
    default.upload_many((path, bucket.url(f"llama/{path.name}")) for path in (tmp_path / "made").iterdir())
    found = flatout.hf.from_pretrained(transformers.AutoModelForCausalLM, bucket.url("llama"))
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad():
        assert torch.equal(found(ids).logits, made.eval()(ids).logits)
    assert type(found) is type(made) and not found.training and found.generation_config.max_length == 7
    half = flatout.hf.from_pretrained(transformers.LlamaForCausalLM, bucket.url("llama"), dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16
