"""What a map comes to, in plain words, and what of it is still missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from triplepoint.report import formats as as_
from triplepoint.report.map_rows import FAILED, Candidate, Effect, Row, wins

CRITERIA = {"fixed_step": "at the fixed step", "best_checkpoint": "at the best checkpoint"}
"""Endpoints that decide, and how prose says them."""


def headline(candidates: Sequence[Candidate]) -> tuple[str, str]:
    """Return a word for the whole map and the tone of it.

    Returns:
        The tone is one of the page's: ``replace`` where a candidate wins everywhere, ``keep`` where none wins.
    """
    effects = [e for candidate in candidates for e in candidate.effects]
    compared = [e for e in effects if any(e.sign(name) is not None for name in CRITERIA)]
    if not compared:
        return "Nothing to compare yet", "none"
    signs = [tuple(e.sign(name) for name in CRITERIA) for e in compared]
    if any(-1 in pair and 1 in pair for pair in signs):
        return "The endpoint decides", "undecided"
    if all(set(pair) == {-1} for pair in signs):
        return "Better in every cell", "replace"
    won, lost = (any(sign in pair for pair in signs) for sign in (-1, 1))
    if won:
        return ("Depends on the cell" if lost else "Better in some cells"), "undecided"
    return ("Better in no cell", "keep") if lost else ("No difference that the intervals show", "undecided")  # fmt: skip


def sentence_of(candidate: Candidate) -> str:
    """Return in how many cells a candidate wins and loses at both endpoints that decide, and what failed.

    Cells without an interval at an endpoint are not among those it is told of.
    """
    parts = [
        told
        for endpoint, words in CRITERIA.items()
        if (told := _told_at(candidate.effects, endpoint, words))
    ]
    cells = f"{candidate.name} against {candidate.baselines}: "
    text = "; ".join(parts) or "no cell could be compared"
    return f"{cells}{text}.{_failed(candidate.effects)}"


def _told_at(effects: Sequence[Effect], endpoint: str, words: str) -> str:
    count = wins(effects, endpoint)
    cells = sum(n for sign, n in count.items() if sign is not None)
    if not cells:
        return ""
    told = f"wins in {count[-1]} of {cells} {'cell' if cells == 1 else 'cells'} {words}, loses in {count[1]}"
    return told + (f", {count[0]} undecided" if count[0] else "")


def _failed(effects: Sequence[Effect]) -> str:
    hit = [(name, sum(name in e.failed for e in effects)) for name in FAILED]
    told = [f"{count} with a {name} seed" for name, count in hit if count]
    return f" {as_.listed(told).capitalize()}." if told else ""


def missing_of(manifest: Mapping, cells: Iterable[Row]) -> dict[str, list[str]]:
    """Return what the map lacks, by kind: ``waiting``, ``failed``, ``quarantined``, ``unpaired``.

    Args:
        manifest: The map's; without ``cells`` nothing is known to be waiting.
        cells: The table's rows of kind ``cell``.
    """
    done = {row.get("identity") for row in cells}
    failed = manifest.get("failed") or {}
    left = [c for c in manifest.get("cells") or [] if c.get("identity") not in done]
    names = {str(c.get("folder")).rpartition("/")[2]: c for c in left}
    return {
        "waiting": [_cell_words(c) for name, c in names.items() if name not in failed],
        "failed": [f"{name}: {error}" for name, error in failed.items()],
        "quarantined": [str(name) for name in manifest.get("quarantined") or []],
        "unpaired": [str(name) for name in manifest.get("unpaired") or []],
    }


def _cell_words(cell: Mapping) -> str:
    settings = cell.get("settings") or {}
    given = ", ".join(f"{axis} {as_.plain(value)}" for axis, value in settings.items() if axis != "op")  # fmt: skip
    return ", ".join(filter(None, [str(cell.get("arm") or as_.DASH), given]))


def progress(manifest: Mapping, finished: int, missing: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what the page says at its top of a map that is not whole; empty for one that is."""
    planned = len(manifest.get("cells") or []) or finished
    told = []
    if finished < planned or manifest.get("status") != "finished":
        told.append(f"{finished} of {planned} cells are done.")
    words = {
        "failed": ("failed", "failed"),
        "quarantined": ("folder was damaged and set aside", "folders were damaged and set aside"),
        "unpaired": ("cell has no baseline in the plan", "cells have no baseline in the plan"),
    }
    for kind, (one, several) in words.items():
        if count := len(missing[kind]):
            told.append(f"{count} {one if count == 1 else several}.")
    return told
