"""The table of candidates: the verdict in numbers, one column per arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from triplepoint.report import formats as as_

FOREST_LIMIT = 0.25
"""Relative changes beyond this are drawn at the edge: one collapsed arm must not flatten the others."""
COLUMNS = 4
"""Candidates side by side in one table; more would not fit on a sheet of paper."""
ENDPOINTS = {
    "best_checkpoint": ("Best checkpoint", "each arm at its lowest validation loss"),
    "fixed_step": ("Fixed step", "both arms after the same number of steps"),
    "matched_train_loss": (
        "Matched training loss",
        "both at the same training loss; never decides",
    ),
}


class Cell(NamedTuple):
    """One cell: the figure, what is said below it in small print, and where its interval lies."""

    main: str = as_.DASH
    sub: str = ""
    forest: dict | None = None
    tone: str = ""


SILENT = Cell("")
"""The baseline's cell of a quantity that is relative to the baseline."""


class Row(NamedTuple):
    """One quantity across the columns."""

    label: str
    note: str
    cells: list[Cell]


def candidate_rows(verdict: Mapping, criterion: str | None) -> list[Row]:
    """Return the quantities of a verdict, the baseline's column first, then one per candidate."""
    baseline, candidates = verdict.get("baseline") or {}, verdict.get("candidates") or []
    scale = forest_scale(candidates)
    rows = [
        Row("Verdict", "", [Cell("reference"), *(_verdict_cell(c) for c in candidates)]),
        *(_endpoint_row(name, baseline, candidates, scale, criterion) for name in ENDPOINTS),
        Row("Forecast at the planned end", "", [SILENT, *(_forecast_cell(c, scale) for c in candidates)]),
        Row("The plan in miniature", "at small sizes; the sign is all that it tells", [SILENT, *(_miniature_cell(c, scale) for c in candidates)]),
        _pair_row("Speed ratio r", "S1 the baseline needs for the candidate's training loss / S1 the "
                  "candidate needed; below 1: behind",
                  candidates, "speed_ratio", "break_even_speed_ratio", as_.ratio),
        _pair_row("Offset c", "validation loss above the baseline's at equal training loss, nats",
                  candidates, "offset", "break_even_offset", as_.offset),
        Row("Saturation", "share of |\N{GREEK SMALL LETTER ALPHA}x| > 2, all sites",
            [SILENT, *(Cell(as_.share(c.get("saturation_2"))) for c in candidates)]),
        Row("State", "at the last step", [_state_cell(baseline), *map(_state_cell, candidates)]),
        Row("Speed and memory", "as multiples of the baseline's", [SILENT, *map(_cost_cell, candidates)]),
        Row("Next informative step", "", [SILENT, *(_next_cell(c.get("next")) for c in candidates)]),
    ]  # fmt: skip
    return [row for row in rows if any(cell.main not in ("", as_.DASH) for cell in row.cells)]


def column_groups(candidates: Sequence[Mapping]) -> list[tuple[int, Sequence[Mapping]]]:
    """Return (place of the first, candidates) of each table, at most four columns wide and even.

    Example:
        >>> [len(group) for _, group in column_groups([{}] * 5)]
        [3, 2]
    """
    tables = -(-len(candidates) // COLUMNS)
    size = -(-len(candidates) // tables) if tables else 1
    return [(i, candidates[i : i + size]) for i in range(0, len(candidates), size)]


def _verdict_cell(candidate: Mapping) -> Cell:
    word = str(candidate.get("verdict") or "undecided")
    return Cell(word, str(candidate.get("why") or ""), tone=word)


def _endpoint_row(
    name: str, baseline: Mapping, candidates: Sequence[Mapping], scale: float, criterion: str | None
) -> Row:
    label, meaning = ENDPOINTS[name]
    found = [(c.get("endpoints") or {}).get(name) or {} for c in candidates]
    first = next((end for end in found if as_.known(end.get("baseline_loss"))), {})
    reference = _loss_at(first.get("baseline_loss"), first.get("baseline_step"))
    if not first and name == "best_checkpoint":
        reference = _loss_at(baseline.get("best_val_loss"), baseline.get("best_step"))
    cells = [Cell(*reference), *(_change_cell(end, scale) for end in found)]
    if not any(found):
        cells = [Cell()] * (len(candidates) + 1)
    label = f"{label} (decides)" if name == criterion else label
    return Row(label, f"validation loss, {meaning}", cells)


def _loss_at(value: float | None, step: int | None) -> tuple[str, str]:
    where = f"at step {as_.count(step)}" if as_.known(step) else ""
    return as_.loss(value), where if as_.known(value) else ""


def _change_cell(end: Mapping, scale: float) -> Cell:
    value, interval = end.get("delta_rel"), end.get("interval")
    low_high = as_.change_interval(interval)
    parts = [f"95 %: {low_high}"] if low_high else []
    if as_.known(end.get("candidate_loss")):
        parts.append(" ".join(_loss_at(end["candidate_loss"], end.get("candidate_step"))))
    return Cell(as_.change(value), "\n".join(parts), _forest(value, interval, scale))


def _forecast_cell(candidate: Mapping, scale: float) -> Cell:
    forecast = candidate.get("forecast")
    if not forecast:
        return Cell()
    value, interval = forecast.get("delta_rel"), forecast.get("interval")
    low_high = as_.change_interval(interval)
    parts = [f"95 %: {low_high}"] if low_high else []
    # one half is what is said where nothing is known
    sure = as_.known(forecast.get("probability")) and forecast["probability"] != 0.5
    if sure and forecast.get("where") != "outside":
        parts.append(
            f"lower than the baseline with probability {as_.share(forecast['probability'])}"
        )
    return Cell(as_.change(value), "\n".join(parts), _forest(value, interval, scale))


def _miniature_cell(candidate: Mapping, scale: float) -> Cell:
    small = candidate.get("miniature")
    if not small:
        return Cell()
    sizes = [f"{as_.change(s.get('delta_rel'))} at 1/{s['k']:.3g}" for s in small.get("sizes") or []]  # fmt: skip
    told = "candidate lower" if small.get("winner") == "candidate" else "candidate higher"
    main = told if small.get("trusted") else "no trusted sign"
    nearest = small["sizes"][-1].get("delta_rel") if small.get("sizes") else None
    return Cell(main, "\n".join(sizes), _forest(nearest, None, scale))


def forest_scale(candidates: Sequence[Mapping]) -> float:
    """Return the relative change at the edge of the small interval plots, one for the whole table."""
    ends = [
        e
        for c in candidates
        for e in [*(c.get("endpoints") or {}).values(), c.get("forecast")]
        if e
    ]
    values = [
        v for e in ends for v in [e.get("delta_rel"), *(e.get("interval") or [])] if as_.known(v)
    ]
    return min(max((abs(v) for v in values), default=0.01) or 0.01, FOREST_LIMIT)


def _forest(value: float | None, interval: Sequence | None, scale: float) -> dict | None:
    """Return where value and interval lie on an axis from 0 to 100 with zero at 50."""
    if not as_.known(value):
        return None
    place = lambda v: round(50 + 46 * max(-1.0, min(1.0, v / scale)), 1)  # noqa: E731
    low, high = interval if interval and all(map(as_.known, interval)) else (value, value)
    return {"at": place(value), "low": place(low), "high": place(high)}


def _pair_row(
    label: str, meaning: str, candidates: Sequence[Mapping], name: str, even: str, form
) -> Row:
    def cell(candidate: Mapping) -> Cell:
        limit = candidate.get(even)
        return Cell(
            form(candidate.get(name)), f"break-even {form(limit)}" if as_.known(limit) else ""
        )

    return Row(label, meaning, [SILENT, *map(cell, candidates)])


def _cost_cell(candidate: Mapping) -> Cell:
    names = {
        "step_time_ratio": "step time",
        "tokens_per_s_ratio": "tokens per second",
        "peak_memory_ratio": "peak memory",
    }
    parts = [
        f"{as_.ratio(candidate[name])}\N{MULTIPLICATION SIGN} {words}"
        for name, words in names.items() if as_.known(candidate.get(name))
    ]  # fmt: skip
    return Cell(parts[0], "\n".join(parts[1:])) if parts else Cell()


def _state_cell(arm: Mapping) -> Cell:
    word = arm.get("phase")
    if not word:
        word = next((name for name in ("collapsed", "stalled") if arm.get(name)), None)
    return Cell(str(word or as_.DASH), str(arm.get("phase_reason") or ""))


def _next_cell(step: Mapping | None) -> Cell:
    if not step:
        return Cell()
    steps = f"{as_.count(step.get('steps'))} steps" if as_.known(step.get("steps")) else ""
    cost = f"about {as_.duration(step.get('cost_s'))}" if as_.known(step.get("cost_s")) else ""
    facts = ", ".join(filter(None, [steps, cost]))
    return Cell(str(step.get("what") or facts or as_.DASH), facts if step.get("what") else "")
