"""The threads of this process, those that Python knows nothing of too."""

import os


def names():
    """What they are called."""
    return list(_threads().values())


def called(name):
    """The numbers of those that are called so."""
    return {task for task, each in _threads().items() if each == name}


def _threads():
    found = {}
    for task in os.listdir("/proc/self/task"):
        # One may end while it is looked at.
        try:
            with open(f"/proc/self/task/{task}/comm") as file:
                found[task] = file.read().strip()
        except OSError:
            continue
    return found
