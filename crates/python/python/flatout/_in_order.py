"""Calls that run ahead of whoever takes what they return."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Made = TypeVar("Made")

_AT_A_TIME = 8


def in_order(calls: Iterable[tuple[int, Callable[[], Made]]], most: int) -> Iterator[Made]:
    """What calls return, in their order. Several run at a time; each says how many bytes it makes, of which at most ``most`` are
    there before they are taken, and a larger one is alone. When this ends, also if it is closed or raises, no call runs any more.
    """
    waiting, running, held = deque(calls), deque[tuple[int, "Future[Made]"]](), 0
    pool = ThreadPoolExecutor(_AT_A_TIME, "flatout-in-order")
    try:
        while waiting or running:
            while waiting and len(running) < _AT_A_TIME and (not held or held + waiting[0][0] <= most):
                size, call = waiting.popleft()
                running.append((size, pool.submit(call)))
                held += size
            size, made = running.popleft()
            yield made.result()
            del made
            held -= size
    finally:
        pool.shutdown(cancel_futures=True)
