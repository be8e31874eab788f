"""Which file of a folder is the log, and of which kind a file is."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from triplepoint.errors import LogError

GZIP, UTF_16 = b"\x1f\x8b", (b"\xff\xfe", b"\xfe\xff")
HEAD = 65_536
"""Bytes that are looked at to tell what a file is."""
KINDS = "trainer_state.json, CSV, JSON Lines, TensorBoard events or a run folder"


class Found(NamedTuple):
    """A log to be read."""

    paths: Sequence[Path]
    """One file; of event files, all in a folder and below."""
    kind: str
    """``text``, ``events`` or ``run``."""


def find_log(path: Path) -> Found:
    """Return the log that is meant by a file or a folder.

    Raises:
        LogError: If there is none, or several of which none can be preferred.
    """
    try:
        is_folder = path.is_dir()
    except OSError as error:  # a name that is too long, say
        raise _unreadable(path, error) from error
    if not is_folder:
        return Found([path], "events" if _is_events(path) else "text")
    if (path / "manifest.json").exists() and (path / "records.jsonl").exists():
        return Found([path / "records.jsonl"], "run")
    for find in _PLACES:
        found = find(path)
        if found:
            return Found([_only(path, found)], "text")
    events = sorted(p for p in path.rglob("*tfevents*") if p.is_file())
    if events:
        return Found(events, "events")
    raise LogError(
        f"{path} holds no log: no trainer_state.json, no metrics.csv, no triplepoint.jsonl, no event files.\n"
        f"Name the file itself: {KINDS}."
    )


def _is_events(path: Path) -> bool:
    return "tfevents" in path.name


def _last_checkpoint(folder: Path) -> list[Path]:
    """Return the state of the checkpoint with the most steps: each state holds the whole history before it."""
    numbered = {
        int(match[1]): state
        for state in folder.glob("checkpoint-*/trainer_state.json")
        if (match := re.fullmatch(r"checkpoint-(\d+)", state.parent.name))
    }
    return [numbered[max(numbered)]] if numbered else []


def _in(pattern: str) -> Callable[[Path], list[Path]]:
    return lambda folder: sorted(folder.glob(pattern))


_PLACES = (
    _in("trainer_state.json"), _in("triplepoint.jsonl"), _in("metrics.csv"), _last_checkpoint,
    _in("version_*/metrics.csv"), _in("lightning_logs/version_*/metrics.csv"), _in("*.jsonl"), _in("*.csv"),
)  # fmt: skip
"""Where a folder has its log, the surest place first."""


def _only(folder: Path, found: Sequence[Path]) -> Path:
    if len(found) > 1:
        names = ", ".join(str(p.relative_to(folder)) for p in found[:5])
        raise LogError(
            f"{folder} holds {len(found)} logs: {names}{', ...' if len(found) > 5 else ''}.\nName one of them."
        )
    return found[0]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """Open a log as text, unpacked where it is gzipped: UTF-8, or UTF-16 with its mark.

    Raises:
        LogError: If it cannot be read, is empty, or is no text.
    """
    import gzip
    import zlib

    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            with gzip.open(raw) if packed else raw as file:
                head = file.read(HEAD)
                file.seek(0)
                yield io.TextIOWrapper(file, encoding=_encoding(path, head), newline="")
    except UnicodeDecodeError as error:
        raise LogError(f"{path} is no text in UTF-8: {error}.\nGive {KINDS}.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> LogError:
    why = getattr(error, "strerror", None) or error
    return LogError(f"{path} cannot be read: {why}.\nGive {KINDS}.")


def _encoding(path: Path, head: bytes) -> str:
    if not head.strip():
        raise LogError(f"{path} is empty.\nGive a log with at least one row: {KINDS}.")
    if head.startswith(UTF_16):
        return "utf-16"
    if b"\0" in head:
        raise LogError(f"{path} is binary, no log.\nGive {KINDS}.")
    return "utf-8-sig"
