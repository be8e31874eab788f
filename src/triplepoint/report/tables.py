"""The tables of the page: verdict in numbers, runs, rules, cost, plan. Values become words here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from triplepoint.report import formats as as_
from triplepoint.report.series import Arm, Series, last, lowest

FOREST_LIMIT = 0.25
"""Relative changes beyond this are drawn at the edge: one collapsed arm must not flatten the others."""
ENDPOINTS = {
    "best_checkpoint": ("Best checkpoint", "each arm at its lowest validation loss"),
    "fixed_step": ("Fixed step", "both arms after the same number of steps"),
    "matched_train_loss": ("Matched training loss", "reported, never decisive"),
}


class Cell(NamedTuple):
    """One cell: the figure, what is said below it in small print, and where its interval lies."""

    main: str = as_.DASH
    sub: str = ""
    forest: dict | None = None
    tone: str = ""


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
        Row("Forecast at the planned end", "", [Cell(), *(_forecast_cell(c, scale) for c in candidates)]),
        _pair_row("Speed ratio r", "S1 the baseline needs for the candidate's training loss, over the "
                  "candidate's own; below 1 the candidate is behind",
                  candidates, "speed_ratio", "break_even_speed_ratio", as_.ratio),
        _pair_row("Offset c", "validation loss above the baseline's at equal training loss, nats",
                  candidates, "offset", "break_even_offset", as_.offset),
        Row("Saturation", "share of |\N{GREEK SMALL LETTER ALPHA}x| > 2, all sites",
            [Cell(), *(Cell(as_.share(c.get("saturation_2"))) for c in candidates)]),
        Row("State", "at the last step", [_state_cell(baseline), *map(_state_cell, candidates)]),
        _cost_row("Step time", "against the baseline", candidates, "step_time_ratio"),
        _cost_row("Tokens per second", "against the baseline", candidates, "tokens_per_s_ratio"),
        _cost_row("Peak memory", "against the baseline", candidates, "peak_memory_ratio"),
        Row("Next informative step", "", [Cell(), *(_next_cell(c.get("next")) for c in candidates)]),
    ]  # fmt: skip
    return [row for row in rows if any(cell.main != as_.DASH for cell in row.cells)]


def _verdict_cell(candidate: Mapping) -> Cell:
    word = str(candidate.get("verdict") or "undecided")
    return Cell(word, str(candidate.get("why") or ""), tone=word)


def _endpoint_row(
    name: str, baseline: Mapping, candidates: Sequence[Mapping], scale: float, criterion: str | None
) -> Row:
    label, meaning = ENDPOINTS[name]
    found = [(c.get("endpoints") or {}).get(name) or {} for c in candidates]
    decides = "; decides" if name == criterion else ""
    first = next((end for end in found if as_.known(end.get("baseline_loss"))), {})
    reference = _loss_at(first.get("baseline_loss"), first.get("baseline_step"))
    if not first and name == "best_checkpoint":
        reference = _loss_at(baseline.get("best_val_loss"), baseline.get("best_step"))
    cells = [Cell(*reference), *(_change_cell(end, scale) for end in found)]
    if not any(found):
        cells = [Cell()] * (len(candidates) + 1)
    return Row(f"{label}", f"validation loss; {meaning}{decides}", cells)


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
    if as_.known(forecast.get("probability")):
        parts.append(f"probability {as_.share(forecast['probability'])}")
    return Cell(as_.change(value), "\n".join(parts), _forest(value, interval, scale))


def forest_scale(candidates: Sequence[Mapping]) -> float:
    """Return the relative change at the edge of the small interval plots, one for the whole table."""
    ends = [e for c in candidates for e in [*(c.get("endpoints") or {}).values(), c.get("forecast")] if e]
    values = [v for e in ends for v in [e.get("delta_rel"), *(e.get("interval") or [])] if as_.known(v)]
    return min(max((abs(v) for v in values), default=0.01) or 0.01, FOREST_LIMIT)


def _forest(value: float | None, interval: Sequence | None, scale: float) -> dict | None:
    """Return where value and interval lie on an axis from 0 to 100 with zero at 50."""
    if not as_.known(value):
        return None
    place = lambda v: round(50 + 46 * max(-1.0, min(1.0, v / scale)), 1)  # noqa: E731
    low, high = interval if interval and all(map(as_.known, interval)) else (value, value)
    return {"at": place(value), "low": place(low), "high": place(high)}


def _pair_row(label: str, meaning: str, candidates: Sequence[Mapping], name: str, even: str, form) -> Row:
    def cell(candidate: Mapping) -> Cell:
        limit = candidate.get(even)
        return Cell(form(candidate.get(name)), f"break-even {form(limit)}" if as_.known(limit) else "")

    return Row(label, meaning, [Cell(), *map(cell, candidates)])


def _cost_row(label: str, meaning: str, candidates: Sequence[Mapping], name: str) -> Row:
    def cell(candidate: Mapping) -> Cell:
        value = candidate.get(name)
        return Cell(f"{as_.ratio(value)}\N{MULTIPLICATION SIGN}" if as_.known(value) else as_.DASH)

    return Row(label, meaning, [Cell(), *map(cell, candidates)])


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


def run_rows(series: Series) -> list[dict]:
    """Return one row per arm and seed: its last and best losses, speed and memory."""
    return [_run_row(series, arm, seed) for arm in series.arms for seed in series.seeds(arm)]


def _run_row(series: Series, arm: Arm, seed: int | None) -> dict:
    def of(metric: str) -> dict:
        return series.whole.get((metric, arm.key), {}).get(seed, {})

    def end(metric: str) -> float | None:
        return (last(of(metric)) or (None, None))[1]

    step, val = last(of("val_loss")) or (None, None)
    best_step, best = lowest(of("val_loss")) or (None, None)
    return {
        "arm": arm, "seed": as_.plain(seed), "steps": as_.count(step or (last(of("train_loss")) or [None])[0]),
        "val": as_.loss(val), "best": as_.loss(best), "best_step": as_.count(best_step),
        "train": as_.loss(end("train_loss")), "time": as_.duration(end("step_time")),
        "tokens": as_.count(end("tokens_per_s")), "memory": as_.memory(end("peak_memory")),
    }  # fmt: skip


PLAN = {
    "steps": "Planned steps", "tokens": "Tokens processed", "unique_tokens": "Distinct tokens",
    "epochs": "Epochs", "tokens_per_parameter": "Tokens per parameter", "parameter_convention": "Parameters counted as",
    "schedule": "Learning-rate schedule", "lr": "Peak learning rate", "calibration_steps": "Calibration steps",
    "s1_share": "Share of the plan's S1 that the calibration covers",
}  # fmt: skip


def facts(manifest: Mapping, plan: Mapping) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what was run, in groups: (title, [(name, value)])."""
    named = {PLAN[key]: plan[key] for key in PLAN if plan.get(key) is not None}
    share = PLAN["s1_share"]
    if share in named:
        named[share] = as_.share(named[share])
    named.update({key: plan[key] for key in plan if key not in PLAN and key != "assumed"})
    run = {"status": manifest.get("status"), "started": manifest.get("started"), "seeds": manifest.get("seeds")}
    run |= {"triplepoint": manifest.get("version"), "identity": manifest.get("identity")}
    groups = {
        "Plan": named,
        "Model": manifest.get("model"),
        "Data": manifest.get("data"),
        "Recipe": manifest.get("recipe"),
        "Run": run,
        "Versions": manifest.get("versions"),
    }
    return [
        (title, [(str(key).replace("_", " "), as_.plain(value)) for key, value in group.items() if value is not None])
        for title, group in groups.items()
        if isinstance(group, Mapping) and any(value is not None for value in group.values())
    ]


def arm_rows(manifest: Mapping, series: Series) -> list[dict]:
    """Return how each arm was made, as the manifest says."""
    declared = manifest.get("arms") or {}
    rows = [(arm, declared.get(arm.name) or {}) for arm in series.arms]
    keys = ("role", "op", "preset", "lr", "preset_source")
    return [{"arm": arm, **{key: as_.plain(made.get(key)) for key in keys}} for arm, made in rows if made]


def rule_rows(rules: Sequence[Mapping] | None) -> list[dict]:
    """Return the published rules, what each says here, and its record."""
    words = {True: "replace", False: "keep", None: "cannot say"}
    rows = []
    for rule in rules or []:
        says = rule.get("says")
        word = words[says] if says is None or isinstance(says, bool) else str(says)
        rows.append({"name": str(rule.get("name")), "says": word, "record": as_.plain(rule.get("record"))})
    return rows
