"""SGLang loads models from buckets: ``sglang.Engine(load_format=flatout.sglang.loader(), …)``.

SGLang takes a class as ``load_format`` from programs, while its command line knows its own formats alone. ``model_path`` is a folder
with config and tokenizer, as :func:`flatout.hf.local_files` makes it:

>>> import sglang                                                                                       # doctest: +SKIP
>>> engine = sglang.Engine(                                                                             # doctest: +SKIP
...     model_path=flatout.hf.local_files("s3://bucket/llama/"),
...     load_format=flatout.sglang.loader(),
...     model_loader_extra_config='{"weights": "s3://bucket/llama/"}',
... )

The options are those of :mod:`flatout.vllm`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from .vllm import checked, weights, weights_of

__all__ = ["loader"]


def loader() -> Any:
    """The class of the loader, which SGLang makes."""
    return getattr(sys.modules[__name__], "Loader")


def __getattr__(name: str) -> Any:
    # By its name, so that it pickles to SGLang's processes, and not before SGLang is there.
    if name != "Loader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sglang.srt.model_loader.loader import DefaultModelLoader  # type: ignore[import-not-found]

    class Loader(DefaultModelLoader):  # type: ignore[misc]
        """Streams weights from a bucket; the rest is that of SGLang's own loader."""

        def __init__(self, load_config: Any) -> None:
            given, load_config.model_loader_extra_config = load_config.model_loader_extra_config, {}
            super().__init__(load_config)
            self._options = checked(given, "load_format")

        def download_model(self, model_config: Any) -> None:
            """Nothing: weights are streamed when they are loaded."""

        def _get_all_weights(self, model_config: Any, model: Any) -> Iterator[tuple[str, Any]]:
            return weights(weights_of(self._options, model_config.model_path), self._options, _tensor_parallel, True)

    Loader.__module__, Loader.__qualname__ = __name__, "Loader"
    globals()["Loader"] = Loader
    return Loader


def _tensor_parallel() -> Any:
    from sglang.srt.distributed import get_tp_group  # type: ignore[import-not-found]

    group = get_tp_group()
    return group.cpu_group if group.world_size > 1 else None
