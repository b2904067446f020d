"""The documentation's own examples with NumPy, whose types say from Python 3.12 on that any buffer will do."""

import numpy
from numpy.typing import NDArray

import flatout

array: NDArray[numpy.float32] = numpy.frombuffer(flatout.read("s3://b/k"), numpy.float32)
count: int = flatout.readinto("s3://b/k", numpy.empty(10, numpy.uint8))
counts: list[int] = flatout.read_ranges("s3://b/k", [(0, 10)], out=[numpy.empty(10, numpy.uint8)])
