"""Shared by ``phase``: what a log's curves say, its table, and its picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

import triplepoint
from triplepoint.cli._output import command_line, console, print_json
from triplepoint.errors import PlanError, RunFolderError
from triplepoint.logs import Log
from triplepoint.timelines import Curves, named, phase_over, summarise

SHOWN = 20
"""Spans in the table; more are the latest ones."""
FLAT = 10
"""Evaluations after which a loss that has not moved is spoken of."""
NEXT = {
    "fitting": "Train on; nothing says yet that more of it will not help.",
    "memorised": "Train on with weight decay if it is to generalise: that comes, if it comes, long after memorising.",
    "generalising": "Train on while validation loss falls.",
    "overfitting": "Go back to the checkpoint of the best step; then more data, more regularisation or fewer steps.",
    "diverged": "Go back to a checkpoint before it; then a lower learning rate, longer warm-up or clipped gradients.",
    None: "Look for what changed where both losses rose: learning rate, data, a resumed state.",
}
"""Last phase -> what to do."""


def judged(log: Log, *, plateau: float | None, vocab: int | None, margin: float) -> dict[str, Any]:
    """Return everything that ``--json`` prints.

    Raises:
        PlanError: If the plateau, the vocabulary or the margin lies outside its range.
    """
    _check(plateau, vocab, margin)
    level, origin = plateau, "--plateau"
    if level is None:
        level, origin = log.plateau, "the run folder"
    if level is None and vocab is not None and "nats" in (log.unit or "nats"):
        level, origin = math.log(vocab), f"ln {vocab}, a uniform guess"
    curves = Curves(**{name: c for name, c in log.curves.items() if name != "lr"})
    spans = phase_over(
        curves, plateau=level, chance=0.0 if vocab is None else 1 / vocab, margin=margin
    )
    if not spans:
        raise PlanError(
            f"{log.path} has no loss or accuracy with a step.\nName the columns: --step-column, --train, --val."
        )
    found = summarise(curves, spans, plateau=level, margin=margin)
    return {
        "log": str(log.path), "kind": log.kind, "rows": log.rows, "columns": log.columns,
        "steps": [spans[0].from_step, spans[-1].to_step],
        "phase": spans[-1].phase, "reason": spans[-1].reason,
        "phases": [span._asdict() for span in spans],
        "best": found.best and {"step": found.best[0], "val_loss": found.best[1]},
        "overfitting": found.onset and {"onset": found.onset._asdict(), "rise": found.rise},
        "times": {name: crossing._asdict() for name, crossing in found.times.items()},
        "plateau": level, "plateau_from": None if level is None else origin, "margin": margin,
        "not_told": found.not_told, "notes": list(log.notes), "next": _next(spans[-1].phase, curves, margin),
    }  # fmt: skip


def _next(phase: str | None, curves: Curves, margin: float) -> str:
    if phase == "fitting" and not (curves.val_loss or curves.val_accuracy):
        return "Log a validation loss: without one, only a divergence can be told."
    finite = [x for _, x in curves.val_loss or curves.train_loss if math.isfinite(x)]
    if phase == "fitting" and len(finite) >= FLAT and max(finite) - min(finite) < margin:
        return (
            f"The loss has not moved in {len(finite)} evaluations: look at learning rate and initialisation, "
            "or compare with a baseline: triplepoint screen."
        )
    return NEXT[phase]


def _check(plateau: float | None, vocab: int | None, margin: float) -> None:
    if plateau is not None and not (math.isfinite(plateau) and plateau > 0):
        raise PlanError(
            f"--plateau is {plateau:g}.\nGive a loss in nats, positive and finite, or --vocab."
        )
    if vocab is not None and vocab < 2:
        raise PlanError(f"--vocab is {vocab}.\nGive the number of tokens or classes, at least 2.")
    if not (math.isfinite(margin) and margin > 0):
        raise PlanError(
            f"--margin is {margin:g}.\nGive a difference of losses, positive and finite."
        )


def show_phases(document: Mapping[str, Any], page: Path | None, *, json: bool) -> None:
    """Print the table of phases and what follows from it, or one JSON document."""
    if json:
        print_json(document)
        return
    out = console(to_stderr=False)
    read = ", ".join(f"{role} = '{name}'" for role, name in document["columns"].items())
    head = f"{document['log']}: {document['kind']}, {document['rows']} rows; {read}."
    out.print(head, soft_wrap=True, markup=False)
    hidden = len(document["phases"]) - SHOWN
    if hidden > 0:
        out.print(f"{hidden} earlier phases are left out; --json has them.", style="dim")
    out.print(_table(document["phases"][-SHOWN:]))
    for line in (*summary_lines(document), *([f"Picture: {page}"] if page else [])):
        out.print(line, soft_wrap=True, markup=False)


def _table(spans: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("from step", "right"), ("to step", "right"), ("phase", "left"), ("why", "left")):  # fmt: skip
        table.add_column(name, justify=justify)
    for span in spans:
        ends = named(span["from_step"]), named(span["to_step"])
        table.add_row(*ends, span["phase"] or "not told", span["reason"])
    return table


def summary_lines(document: Mapping[str, Any]) -> list[str]:
    """Return what follows from the curves, a line each."""
    lines, best = [], document["best"]
    if best:
        lines.append(f"Best step: {named(best['step'])}, validation loss {best['val_loss']:.4g}.")
    if document["overfitting"]:
        lines.append(_onset_line(document))
    lines += [f"{name}: {crossing_text(found)}." for name, found in document["times"].items()]
    if document["plateau"] is not None:
        lines.append(f"Plateau: {document['plateau']:.4g} nats, from {document['plateau_from']}.")
    lines += [f"Not told: {what}: {why}." for what, why in document["not_told"].items()]
    lines += [f"Note: {note}." for note in document["notes"]]
    return [*lines, f"Next: {document['next']}"]


def _onset_line(document: Mapping[str, Any]) -> str:
    found, best = document["overfitting"], document["best"]["val_loss"]
    relative = f" ({found['rise'] / best:+.1%})" if best > 0 else ""
    at_the_end = f"at the end {found['rise']:.4g} above the best{relative}"
    if found["rise"] == 0:
        at_the_end = "the last evaluation is the best"
    return f"Over-fitting onset: {crossing_text(found['onset'])}; {at_the_end}."


def crossing_text(crossing: Mapping[str, float | None]) -> str:
    """Return when something happened, or until when it had not.

    Example:
        >>> crossing_text({"step": None, "censored_at": 12000})
        '> 12000: not reached'
    """
    if crossing["step"] is not None:
        return f"step {named(crossing['step'])}"
    return f"> {named(crossing['censored_at'])}: not reached"


def draw(document: Mapping[str, Any], log: Log, out: Path) -> Path:
    """Write the page: into a run folder, or as the one file that ``out`` names.

    Raises:
        RunFolderError: If the folder is another run's, or cannot be written.
    """
    from triplepoint.report import render, write_report
    from triplepoint.report.phase_page import drawn
    from triplepoint.runs import RunFolder, atomic_path

    facts = {
        **document, "status": "finished", "version": triplepoint.__version__, "command": command_line(),
        "curves": {name: drawn(points) for name, points in log.curves.items()},
        "lines": summary_lines(document),
    }  # fmt: skip
    asked = {"log": str(log.path.resolve())}
    if out.suffix.lower() in (".html", ".htm"):
        text = render({"asked": {"kind": "phase", **asked}, **facts}, [], None)
        if not out.absolute().parent.is_dir():
            raise RunFolderError(
                f"{out} cannot be written: there is no folder {out.parent}.\nMake it, or name another file with --out."
            )
        with atomic_path(out) as beside:
            beside.write_text(text, encoding="utf-8")
        return out
    with RunFolder(out, asked=asked, kind="phase") as folder:
        folder.write_manifest(facts)
        return write_report(folder.path)
