"""Which stream a command's document goes to: stdout, which then holds nothing else."""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Iterator
from typing import TextIO

_KEPT: contextvars.ContextVar[TextIO | None] = contextvars.ContextVar("kept", default=None)


def documents() -> TextIO:
    """Return the stream to write JSON to."""
    return _KEPT.get() or sys.stdout


@contextlib.contextmanager
def kept_for_documents() -> Iterator[None]:
    """Send to stderr whatever else is printed meanwhile, as by the code of a user's own model."""
    token = _KEPT.set(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _KEPT.reset(token)
