"""Runs calls in parallel, and does not wait for the others once one has failed."""

import threading as _threading
from collections import deque as _deque
from queue import SimpleQueue as _SimpleQueue

__all__ = ["at_once"]

#: How many listings or objects are asked for at a time where the engine has no call for all of them.
_AT_A_TIME = 16


def at_once(call, many) -> list:
    """``[call(each) for each in many]``, several at a time.

    What one raises is raised at once, as is Ctrl-C: no further call begins, and those that run are left to end by
    themselves. Threads of `concurrent.futures` would be waited for, here and at the interpreter's end.
    """
    many = list(many)
    if len(many) < 2:
        return [call(each) for each in many]
    left, ended = _deque(enumerate(many)), _SimpleQueue()

    def work():
        while left:
            try:
                index, each = left.popleft()
            except IndexError:
                return
            try:
                ended.put((index, call(each), None))
            except BaseException as error:
                ended.put((index, None, error))

    results: list = [None] * len(many)
    try:
        for _ in range(min(_AT_A_TIME, len(many))):
            _threading.Thread(target=work, name="flatout-at-once", daemon=True).start()
        for _ in many:
            index, results[index], error = ended.get()
            if error is not None:
                raise error
    finally:
        left.clear()
    return results
