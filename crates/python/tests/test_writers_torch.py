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
