"""How many processes share the machine with this one: threads and memory are divided among them, unless they are set."""

import os
import sys


def count() -> int:
    """This process and its siblings: ranks of this machine, workers of a DataLoader, children of the same pool."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(_workers(), 1) * max(int(ranks) if ranks.isdecimal() else 1, 1)


def _workers() -> int:
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is None or multiprocessing.parent_process() is None:
        return 1
    data = sys.modules.get("torch.utils.data")
    worker = data.get_worker_info() if data is not None else None
    if worker is not None:
        return worker.num_workers
    return _children_of(os.getppid())


def _children_of(parent: int) -> int:
    """As many as there are now; where the kernel does not say, as many as there are cores."""
    try:
        count = 0
        for thread in os.listdir(f"/proc/{parent}/task"):
            with open(f"/proc/{parent}/task/{thread}/children") as children:
                count += len(children.read().split())
        return count
    except OSError:
        return os.cpu_count() or 1
