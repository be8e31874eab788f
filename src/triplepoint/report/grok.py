"""The page of a grokking run: what its template is filled with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from triplepoint.records import Record
from triplepoint.report import facts, formats
from triplepoint.report import grok_tables as tables
from triplepoint.report.figures import to_json
from triplepoint.report.grok_axes import Run, runs_of
from triplepoint.report.grok_circles import circle_figure
from triplepoint.report.grok_curves import curve_figure, norm_figure, tangent_figure, toy_figure
from triplepoint.report.grok_fourier import MAPS, power_figure
from triplepoint.report.grok_toys import toy_floors, toy_headline, toy_rows
from triplepoint.report.grok_words import (
    ahead_rows,
    forwarded_headline,
    headline,
    one_step_headline,
)
from triplepoint.report.series import Series, index

KIND = "grok"
"""What the manifest says such a run is."""
TEMPLATE = "grok.html.j2"
COMMANDS = {
    "train": "Training",
    "simulate": "Isolated flow of the first layer",
    "fast-forward": "Fast-forward",
    "toy": "Toy model",
    "analyse": "Checkpoint",
}
"""Command -> what the page calls its run."""
MARKED = {"T_mem": "T<sub>mem</sub>", "T_grok_0.99": "T<sub>grok</sub>"}
"""Times that are marked in the curves of a single run."""


def context(manifest: Mapping, records: Sequence[Record], arrays: Mapping) -> dict:
    """Return what the template of a grokking run needs; parts without records are empty.

    Args:
        manifest: What ``manifest.json`` holds.
        records: The run's records, in any order. One without a step is a checkpoint's, drawn as step 0.
        arrays: What ``arrays.npz`` holds: the circles.
    """
    rows = [r if r.step is not None else dataclasses.replace(r, step=0) for r in records]
    series = index(rows, manifest.get("arms"))
    runs = runs_of(series)
    command = (manifest.get("asked") or {}).get("command") or ""
    steps = {row.step for row in rows}
    # one measurement says nothing about when, and a fast-forward's gradients are no training
    timed = len(steps) > 1 and command != "fast-forward"
    times = tables.times_of(manifest, rows, series, runs) if timed else {}
    toy = manifest.get("toy") or {}
    if command == "toy":
        word, sentence, tone = toy_headline(toy)
    elif command == "fast-forward" and runs:
        word, sentence, tone = forwarded_headline(series, runs[0])
    elif len(steps) == 1 and len(runs) == 1:
        word, sentence, tone = one_step_headline(series, runs[0])
    else:
        word, sentence, tone = headline(series, times)
    return {
        "title": _title(command, manifest),
        "word": word,
        "sentence": sentence,
        "tone": tone,
        "several": len(runs) > 1,
        "trajectory": len(steps) > 1,
        "times": tables.time_rows(times),
        "time_names": [name for name, *_ in tables.TIMES.values()],
        "numbers": tables.number_groups(series, runs) if command != "toy" else [],
        "toy": toy,
        "toy_rows": toy_rows(toy),
        "ahead": ahead_rows(manifest.get("ahead") or {}),
        "silent_laws": ((manifest.get("ahead") or {}).get("forecast") or {}).get("excluded") or {},
        "applies": manifest.get("applies") or [],
        "facts": facts.facts(manifest | _task(manifest), manifest.get("plan") or {}),
        "maps": MAPS,
        "figures": _figures(command, manifest, series, runs, times, arrays),
    }


def _title(command: str, manifest: Mapping) -> str:
    what = COMMANDS.get(command, "Grokking run")
    model = (manifest.get("model") or {}).get("name") or (manifest.get("toy") or {}).get("name")
    task = manifest.get("task") or (manifest.get("data") or {}).get("source")
    of = ", ".join(str(part) for part in (model, task) if part)
    return f"{what}: {of}" if of else what


def _task(manifest: Mapping) -> dict:
    """Return the facts about the data in the place where other runs have theirs."""
    data = dict(manifest.get("data") or {})
    if manifest.get("task"):
        data["task"] = manifest["task"]
    for part, samples in (manifest.get("samples") or {}).items():
        data[f"{part} samples"] = samples
    return {"data": data}


def _figures(
    command: str, manifest: Mapping, series: Series, runs: Sequence[Run], times: Mapping, arrays: Mapping
) -> dict[str, Markup]:  # fmt: skip
    """Return the JSON of each figure that the run has numbers for, by the name of its place."""
    if command == "toy":
        floors = toy_floors(manifest.get("toy") or {})
        found = {"toy": toy_figure(series, runs, floors, unit=_loss_unit(manifest))}
    else:
        clock = "gradients" if command == "fast-forward" else "steps"
        marks = _marks(times)
        found = {
            "curves": curve_figure(series, runs, marks, unit=_loss_unit(manifest), clock=clock),
            "norms": norm_figure(series, runs, marks, clock=clock),
            "tangent": tangent_figure(series, runs, marks),
            "power": power_figure(series, runs),
            "circles": circle_figure(arrays),
        }
    return {name: Markup(to_json(figure)) for name, figure in found.items() if figure}


def _marks(times: Mapping) -> list[tuple[str, int]]:
    """Return what is marked in the curves: the times of a single run; those of several would be a thicket."""
    if len(times) != 1:
        return []
    (own,) = times.values()
    met = ((label, own[name].step) for name, label in MARKED.items() if name in own)
    return [(label, step) for label, step in met if step is not None]


def _loss_unit(manifest: Mapping) -> str:
    metrics = manifest.get("metrics") or {}
    units = (metrics[m].get("unit") for m in ("train_loss", "val_loss") if metrics.get(m))
    return formats.plain(next(filter(None, units), "as recorded")).replace("/", " per ")
