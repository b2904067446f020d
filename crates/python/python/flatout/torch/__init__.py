"""PyTorch: datasets over objects, checkpoints, and models that ranks share.

>>> from flatout.torch import Checkpoint, MapDataset                              # doctest: +SKIP
>>> images = MapDataset.from_prefix("s3://bucket/images/", transform=decode)      # doctest: +SKIP
>>> loader = torch.utils.data.DataLoader(images, batch_size=64, num_workers=4)    # doctest: +SKIP
"""

from ._checkpoint import Checkpoint
from ._datasets import IterableDataset, MapDataset, Sample
from ._indexed import IndexKeys
from ._keys import KeyTable
from ._loaders import ReadAhead
from ._rows import RowIterableDataset, RowMapDataset
from ._sharded import load_sharded, stream_sharded
from ._tar import InvalidTar, TarDataset

__all__ = [
    "Checkpoint",
    "IndexKeys",
    "InvalidTar",
    "IterableDataset",
    "KeyTable",
    "MapDataset",
    "ReadAhead",
    "RowIterableDataset",
    "RowMapDataset",
    "Sample",
    "TarDataset",
    "load_sharded",
    "stream_sharded",
]
