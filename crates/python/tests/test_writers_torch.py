"""PyTorch writes an object as it writes a file."""

import pytest

import flatout

# scripts/python.sh runs this with the interpreter that has it, too.
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_state_dict_is_saved_and_loaded(client, bucket, zipped):
    state = {"weights": torch.randn(700, 1000), "step": 100, "half": torch.arange(10).half()}
    with client.open(bucket.url("step-100.pt"), "wb") as file:
        torch.save(state, file, _use_new_zipfile_serialization=zipped)
    with client.open(bucket.url("step-100.pt")) as file:
        loaded = torch.load(file)
    assert loaded["step"] == 100 and all(torch.equal(loaded[name], state[name]) for name in ("weights", "half"))


def test_a_tensor_is_written(client, bucket):
    tensor = torch.arange(1 << 20)
    flatout.write(bucket.url("raw"), tensor.numpy(), client=client)
    assert client.read(bucket.url("raw")) == tensor.numpy().tobytes()


def test_tensors_are_saved_to_safetensors_and_twins_once(client, bucket):
    from flatout.safetensors import load_file, load_model, safe_open, save_file, save_model

    weight = torch.randn(100, 64)
    url = bucket.url("a.safetensors")
    state = {"a": weight, "t": weight.clone().t(), "h": torch.arange(5).bfloat16(), "s": torch.tensor(2.5), "e": torch.empty(0, 3)}
    save_file(state, url, {"format": "pt"}, client=client)
    loaded = load_file(url, framework="pt", client=client)
    assert all(torch.equal(loaded[name], state[name]) and loaded[name].dtype == state[name].dtype for name in state)
    with pytest.raises(flatout.UsageError, match="'a', 'b' share memory"):
        save_file({"a": weight, "b": weight}, url, client=client)
    with pytest.raises(flatout.UsageError, match="share memory"):
        save_file({"a": weight, "b": weight[10:]}, url, client=client)
    save_file({"a": weight[:10], "b": weight[10:]}, url, client=client)
    with pytest.raises(flatout.UsageError, match="sparse"):
        save_file({"a": weight.to_sparse()}, url, client=client)
    module = torch.nn.Sequential(torch.nn.Embedding(100, 64), torch.nn.Linear(64, 100, bias=False))
    module[1].weight = module[0].weight
    save_model(module, bucket.url("tied/"), client=client)
    assert load_model(bucket.url("tied/"), framework="pt", client=client).keys() == {"0.weight"}
    with safe_open(bucket.url("tied/model.safetensors"), "pt", client=client) as opened:
        assert opened.metadata() == {"format": "pt", "1.weight": "0.weight"}
