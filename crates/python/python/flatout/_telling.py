"""Calls a function with the progress of a call, for interfaces that expect callbacks."""

import threading as _threading

from ._native import Progress

__all__ = ["EVERY_S", "Telling"]

#: How often. Never for each piece that lands: the interpreter's lock would be in the way of the bytes.
EVERY_S = 0.1


class Telling:
    """Calls ``tell(done, total)``, bytes both, about ten times a second from a thread of its own and, if the call ends
    well, once more from the caller's: ``with Telling(tell) as progress: client.readinto(…, progress=progress)``. With
    None nothing is told, and ``progress`` is None. What ``tell`` raises ends the telling, not the call, and is raised
    behind it.
    """

    def __init__(self, tell):
        self._tell = tell
        self._over = _threading.Event()
        self._raised = None

    def __enter__(self):
        if self._tell is None:
            return None
        self._progress = Progress()
        self._thread = _threading.Thread(target=self._tell_until_over, name="flatout-progress", daemon=True)
        self._thread.start()
        return self._progress

    def __exit__(self, kind, error, trace):
        if self._tell is None:
            return
        self._over.set()
        self._thread.join()
        if error is None:
            if self._raised is not None:
                raise self._raised
            self._tell(self._progress.done, self._progress.total)

    def _tell_until_over(self):
        while not self._over.wait(EVERY_S):
            total = self._progress.total
            if total is None:
                continue
            try:
                self._tell(self._progress.done, total)
            except BaseException as error:
                self._raised = error
                return
