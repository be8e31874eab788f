"""Errors that users see: what is wrong on the first line, what to try on the second.

Every class has a standard-library base as well, so that a caller's ``except ValueError`` works.
The command line turns any of them into exit status 2 without a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TriplepointError(Exception):
    """Base of everything that triplepoint raises on purpose."""


class MetricInputError(TriplepointError, ValueError):
    """A tensor that a metric cannot measure."""


class StatisticsError(TriplepointError, ValueError):
    """Numbers from which the asked statistic cannot be computed."""


class DataError(TriplepointError, ValueError):
    """Training or evaluation data that are missing, too short or of another kind."""


class PlanError(TriplepointError, ValueError):
    """Settings that contradict each other or lie outside their range."""


class ModelError(TriplepointError, TypeError):
    """A model that cannot be built, swapped or trained as asked."""


class RunFolderError(TriplepointError, OSError):
    """A run folder that belongs to another run, is in use, or cannot be written."""


class FolderInUseError(RunFolderError, BlockingIOError):
    """A run folder that another process holds at the moment."""


class ExecutorError(TriplepointError, ConnectionError):
    """Machines or processes that cannot be reached, or that were lost too often."""


class CheckpointError(TriplepointError, ValueError):
    """A checkpoint or weight file that cannot be read."""


class LogError(TriplepointError, ValueError):
    """A log of a run that cannot be read, or without the columns that are needed."""


class NonFiniteLossError(TriplepointError, ArithmeticError):
    """A loss that was not finite from the first step: nothing can be learnt from the run."""


class MissingExtraError(TriplepointError, ImportError):
    """An optional dependency that is not installed."""


class UnknownNameError(TriplepointError, LookupError):
    """A name of an op, a preset, a size or a metric that does not exist."""


def unknown_name(kind: str, given: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for a name that is not in ``known``, suggesting the nearest.

    Example:
        >>> print(unknown_name("op", "dty", ["dyt", "derf"]))
        There is no op 'dty'.
        Did you mean 'dyt'? Known: dyt, derf.
    """
    names = list(known)
    near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    return UnknownNameError(f"There is no {kind} '{given}'.\n{hint}Known: {', '.join(names)}.")
