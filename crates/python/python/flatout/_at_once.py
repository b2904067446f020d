"""Runs calls in parallel, and does not wait for the others once one has failed."""

import threading as _threading
from collections import deque as _deque
from queue import SimpleQueue as _SimpleQueue

__all__ = ["at_once", "to_the_end"]

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


def to_the_end(call, many, stop=lambda: None, at_a_time=_AT_A_TIME) -> list:
    """As :func:`at_once`, and returns or raises only when every call has ended: they look at what is the caller's, and what they
    make is seen. Once one has failed no further call begins, and ``stop`` has those that run end soon."""
    many = list(many)
    results: list = [None] * len(many)
    left, failed = _deque(enumerate(many)), []

    def work():
        while not failed:
            try:
                index, each = left.popleft()
            except IndexError:
                return
            try:
                results[index] = call(each)
            except BaseException as error:
                failed.append(error)
                stop()

    threads = [_threading.Thread(target=work, name="flatout-to-the-end", daemon=True) for _ in many[:at_a_time]]
    [thread.start() for thread in threads]
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.05)
    except BaseException as error:
        failed.append(error)
        stop()
        for thread in threads:
            thread.join()
        raise
    if failed:
        raise failed[0]
    return results
