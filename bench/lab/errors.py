"""What ends a run of the lab early, with the exit code that says so."""

import signal


class LabError(Exception):
    """Something that the caller can put right: what it is about, why, and what to do."""

    exit_code = 1


class UsageError(LabError):
    """What was asked for cannot be: an option, a file of the catalogue, results that do not fit."""

    exit_code = 4


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM: everything that was started ends, everything that was made goes."""


def nearest(word: str, known) -> str:
    """The end of an error about an unknown word: the nearest known one, else all of them."""
    import difflib

    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known: {', '.join(known)}" if known else "; nothing is known there"


def end_on_signals():
    """Turns the first SIGINT or SIGTERM into `Interrupted`; later ones must not break off the cleaning up."""

    def on_signal(number, _frame):
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(signal.Signals(number).name)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, on_signal)
