"""The threads of this process, those that Python knows nothing of too."""

import os


def names():
    """What they are called. One may end while it is looked at."""
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as file:
                found.append(file.read().strip())
        except OSError:
            continue
    return found
