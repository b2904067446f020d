"""What ``logging`` is told, under the name ``flatout``. Nothing is shown unless the program says so."""

import logging as _logging

__all__ = ["logger"]

logger = _logging.getLogger("flatout")
logger.addHandler(_logging.NullHandler())
