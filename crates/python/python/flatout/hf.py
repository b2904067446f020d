"""Models of Hugging Face's libraries, loaded from a bucket without patches.

>>> from transformers import AutoModelForCausalLM, AutoTokenizer                              # doctest: +SKIP
>>> model = flatout.hf.from_pretrained(AutoModelForCausalLM, "s3://bucket/llama/")            # doctest: +SKIP
>>> tokenizer = AutoTokenizer.from_pretrained(flatout.hf.local_files("s3://bucket/llama/"))   # doctest: +SKIP
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from .client import Client, default_client
from .errors import LocalError, NotFound, ObjectChanged, UsageError
from .safetensors import load_model

__all__ = ["from_pretrained", "local_files", "state_dict"]

#: What a model's weights are called; all else is small.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx", ".tensors")
#: And what comes with them in one format only.
_FOLDERS = ("original/",)
#: A file that is as large as this is no config.
_LARGEST = 256 << 20


def is_url(name: str) -> bool:
    """Whether a name is one of a bucket."""
    return name.startswith(("s3://", "oss://"))


def state_dict(url: str, device: Any = "cpu", *, client: Client | None = None) -> dict[str, Any]:
    """The weights of a model by name, for ``load_state_dict`` or ``from_pretrained``; see :func:`flatout.safetensors.load_model`."""
    return load_model(url, device, framework="pt", client=client)


def local_files(url: str, cache_dir: str | os.PathLike[str] | None = None, *, client: Client | None = None) -> str:
    """A local folder with all files of a model but its weights, such as its config and tokenizer.

    It is there already where an earlier call has made it of the same versions; another version of the model has a folder of its
    own. It appears whole, also with several processes at it.

    Args:
        url: the folder of the model.
        cache_dir: where such folders are; by default ``~/.cache/flatout/models``.
        client: by default :func:`flatout.default_client`.

    Raises:
        NotFound: nothing is there.
    """
    if not is_url(url):
        raise UsageError(kind="usage", doing="model", object=url, cause="this is no URL of a bucket", hint="s3://… or oss://…")
    client = client or default_client()
    folder = url if url.endswith("/") else f"{url}/"
    parent = Path(cache_dir) if cache_dir is not None else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flatout" / "models"
    wanted = _listed(client, folder)
    told = "\n".join(f"{name} {version}" for name, version in sorted(wanted.items()))
    whole = hashlib.sha256(f"{folder}\n{told}".encode()).hexdigest()[:24]
    target = parent / whole
    if target.is_dir():
        return str(target)
    for name in wanted:
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise UsageError(kind="usage", doing="model", object=folder + name, cause="the key leads out of the folder")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        making = Path(tempfile.mkdtemp(prefix=f".{whole}-", dir=parent))
    except OSError as error:
        raise LocalError(kind="local_io", doing="model", object=str(parent), cause=str(error)) from error
    try:
        for name in wanted:
            (making / name).parent.mkdir(parents=True, exist_ok=True)
        client.download_many([(folder + name, making / name) for name in wanted])
        if _listed(client, folder) != wanted:
            cause = "an object was replaced while the model was fetched"
            raise ObjectChanged(kind="changed", doing="model", object=folder, cause=cause, hint="try it again")
        # As other folders of the user's, which tempfile makes for the user alone.
        making.chmod(parent.stat().st_mode & 0o777)
        try:
            making.rename(target)
        except OSError:
            # Another process was first.
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return str(target)


def _listed(client: Client, folder: str) -> dict[str, tuple[str | None, float | None, int | None]]:
    """The files of a model but its weights, and which version each is of."""
    found = [info for info in client.ls(folder, recursive=True) if not info.is_prefix and not info.url.endswith("/")]
    if not found:
        raise NotFound(kind="not_found", doing="model", object=folder, cause="no object lies below this prefix")
    named = ((info.url.removeprefix(folder), info) for info in found)
    return {name: (info.etag, info.modified, info.size) for name, info in named if _is_wanted(name, info.size)}


def _sweep(parent: Path) -> None:
    """Removes what killed processes have left."""
    for each in parent.glob(".*-*"):
        if time.time() - each.stat().st_mtime > 86400:
            shutil.rmtree(each, ignore_errors=True)


def from_pretrained(cls: Any, url: str, *, config: Any = None, client: Client | None = None, **named: Any) -> Any:
    """``cls.from_pretrained`` of a model in a bucket: the config by :func:`local_files`, the weights straight to memory.

    Args:
        cls: a class of transformers, as ``AutoModelForCausalLM``.
        url: the folder of the model.
        config: instead of that in the folder.
        client: by default :func:`flatout.default_client`.
        named: further arguments of ``from_pretrained``.
    """
    import torch
    import transformers  # type: ignore[import-not-found]

    folder = local_files(url, client=client)
    trusted = {"trust_remote_code": named["trust_remote_code"]} if "trust_remote_code" in named else {}
    if config is None:
        config = transformers.AutoConfig.from_pretrained(folder, **trusted)
    if hasattr(cls, "from_config"):
        # Weights without a name go to a class of its own, which is found without any memory.
        with torch.device("meta"):
            cls = type(cls.from_config(config, **trusted))
        named = {name: value for name, value in named.items() if name not in trusted}
    model = cls.from_pretrained(None, config=config, state_dict=state_dict(url, client=client), **named)
    if os.path.exists(os.path.join(folder, "generation_config.json")) and hasattr(model, "generation_config"):
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    return model


def _is_wanted(name: str, size: int | None) -> bool:
    return not name.lower().endswith(_WEIGHTS) and not name.startswith(_FOLDERS) and (size or 0) <= _LARGEST
