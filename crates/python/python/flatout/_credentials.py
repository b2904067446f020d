"""The thread that asks a function of the user's for keys: the engine's own threads never take the interpreter's lock."""

from __future__ import annotations

import threading as _threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._log import logger as _logger
from ._native import Credentials

if TYPE_CHECKING:
    from ._native import Questions

__all__ = ["start"]


def start(questions: Questions, callback: Callable[[], Credentials]) -> None:
    """Answers them by ``callback`` until nobody asks any more."""
    _threading.Thread(target=_serve, args=(questions, callback), name="flatout-credentials", daemon=True).start()


def _serve(questions: Questions, callback: Callable[[], Credentials]) -> None:
    while (question := questions.next()) is not None:
        try:
            credentials = callback()
        except BaseException as error:
            # The traceback shows the user's own function; no value of it is in ours.
            _logger.error("credentials: the function raised %s", type(error).__name__, exc_info=True)
            question.refuse(f"it raised {type(error).__name__}: {error}")
        else:
            # Whatever else it is may hold a secret, and is not shown.
            if isinstance(credentials, Credentials):
                _logger.info("credentials: the function returned new ones, which end at %s", credentials.expires)
            question.answer(credentials)
        del question
