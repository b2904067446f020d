"""vLLM loads models from buckets: ``vllm serve s3://bucket/llama/ --load-format flatout``.

vLLM finds this by the entry point group ``vllm.general_plugins`` and calls :func:`register` in each of its processes. Weights are
streamed to where they belong; the other files of a model, as its config and tokenizer, come to a local folder. Options are JSON in
``--model-loader-extra-config``:

- ``weights``: where the safetensors files are, when ``--model`` is a local folder.
- ``distributed``: true has the ranks of tensor parallelism fetch each byte once in all and exchange them.
- ``memory_limit``: bytes that may be in flight, or fetched and not yet taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .errors import UsageError
from .hf import is_url, local_files
from .safetensors import stream_tensors

__all__ = ["register"]

_FORMAT = "flatout"
_OPTIONS = {"weights": str, "distributed": bool, "memory_limit": int}


def register() -> None:
    """Makes ``--load-format flatout`` known to vLLM, and models named by ``oss://`` and ``s3://``. Calling it again does nothing.

    URLs of ``s3://`` stay with Run:ai's streamer where that is installed.
    """
    from vllm.config import ModelConfig  # type: ignore[import-not-found]
    from vllm.model_executor.model_loader import register_model_loader  # type: ignore[import-not-found]
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader  # type: ignore[import-not-found]

    pulled = ModelConfig.maybe_pull_model_tokenizer_for_runai
    if getattr(pulled, "is_flatout", False):
        return

    class Loader(BaseModelLoader):  # type: ignore[misc]
        """Streams weights from a bucket."""

        def __init__(self, load_config: Any) -> None:
            super().__init__(load_config)
            self._options = checked(load_config.model_loader_extra_config, f"--load-format {_FORMAT}")

        def download_model(self, model_config: Any) -> None:
            """Nothing: weights are streamed when they are loaded."""

        def load_weights(self, model: Any, model_config: Any) -> None:
            """Hands the weights to the model as they arrive."""
            url = weights_of(self._options, getattr(model_config, "model_weights", None), model_config.model)
            model.load_weights(weights(url, self._options, _tensor_parallel, bool(getattr(self.load_config, "use_tqdm_on_load", False))))

    register_model_loader(_FORMAT)(Loader)

    def pull(self: Any, model: str, tokenizer: str) -> None:
        if getattr(self, "model_weights", None) or not (_is_ours(model) or _is_ours(tokenizer)):
            return pulled(self, model, tokenizer)
        if _is_ours(model):
            self.model_weights, self.model = model, local_files(model)
        if _is_ours(tokenizer):
            self.tokenizer = local_files(tokenizer)

    pull.is_flatout = True  # type: ignore[attr-defined]
    ModelConfig.maybe_pull_model_tokenizer_for_runai = pull


def checked(given: Any, doing: str) -> dict[str, Any]:
    """The options that a user has given to a loader.

    Raises:
        UsageError: one is unknown, or of another type.
    """
    options = dict(given or {})
    for name, value in options.items():
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise UsageError(kind="usage", doing=doing, object=name, cause="there is no such option", hint=f"those of flatout are {known}")
        if type(value) is not _OPTIONS[name]:
            cause = f"{value!r} is no {_OPTIONS[name].__name__}"
            raise UsageError(kind="usage", doing=doing, object=name, cause=cause)
    return options


def weights_of(options: dict[str, Any], *named: str | None) -> str:
    """Where the weights are: by the options, or the first URL among the names.

    Raises:
        UsageError: no URL was given.
    """
    url: str | None = next((each for each in (options.get("weights"), *named) if each and is_url(each)), None)
    if url is None:
        name = next((each for each in reversed(named) if each), "")
        hint = """name the model s3://… or oss://…, or say where its weights are: --model-loader-extra-config '{"weights": "s3://…"}'"""
        raise UsageError(kind="usage", doing="load", object=name, cause="this is no URL of a bucket", hint=hint)
    return url if url.endswith((".safetensors", ".json", "/")) else f"{url}/"


def weights(url: str, options: dict[str, Any], group_of: Any, bar: bool) -> Iterator[tuple[str, Any]]:
    """The tensors of a model, one by one."""
    limit = options.get("memory_limit")
    group = group_of() if options.get("distributed") else None
    # One bar is enough for all ranks.
    bar = bar and _is_first()
    if group is None:
        return stream_tensors(url, framework="pt", memory_limit=limit, progress=bar)
    from .torch import stream_sharded

    return stream_sharded(url, group=group, memory_limit=limit, progress=bar)


def _tensor_parallel() -> Any:
    """The group of ranks that hold parts of the same layers, on the CPU; None where there is one rank only."""
    from vllm.distributed.parallel_state import get_tp_group  # type: ignore[import-not-found]

    group = get_tp_group()
    return group.cpu_group if group.world_size > 1 else None


def _is_first() -> bool:
    import torch.distributed as dist

    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def _is_ours(name: Any) -> bool:
    if not isinstance(name, str) or not is_url(name):
        return False
    return name.startswith("oss://") or not _has_streamer()


def _has_streamer() -> bool:
    from importlib.util import find_spec

    return find_spec("runai_model_streamer") is not None
