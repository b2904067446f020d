"""A tqdm bar for a call, drawn by a thread that watches its progress: the call itself calls nothing."""

import threading

_EVERY_S = 0.1


class Bar:
    def __init__(self, progress, title):
        try:
            from tqdm.auto import tqdm
        except ImportError as missing:
            raise ImportError(
                "progress=True shows a bar of tqdm: pip install tqdm, or pass a flatout.Progress() and look at it"
            ) from missing
        self._progress = progress
        self._bar = tqdm(desc=title, unit="B", unit_scale=True, unit_divisor=1024, mininterval=0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flatout-bar", daemon=True)
        self._thread.start()

    def close(self):
        self._over.set()
        self._thread.join()
        self._show()
        self._bar.close()

    def _run(self):
        while not self._over.wait(_EVERY_S):
            self._show()

    def _show(self):
        self._bar.total = self._progress.total
        self._bar.update(self._progress.done - self._bar.n)
