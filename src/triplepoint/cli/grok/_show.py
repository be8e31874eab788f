"""How a grokking run ends on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from triplepoint.cli._output import console, print_json
from triplepoint.report import write_report
from triplepoint.report.grok_words import ahead_rows

if TYPE_CHECKING:
    from triplepoint.experiments.folders import GrokRun
    from triplepoint.experiments.toys import ToyEnd

LABELS = {
    "T_mem": "memorised (train accuracy 99 %)",
    "T_grok_0.5": "held-out accuracy 50 %",
    "T_grok_0.9": "held-out accuracy 90 %",
    "T_grok_0.99": "held-out accuracy 99 %",
}


def show_run(run: GrokRun, *, json: bool) -> None:
    """Write the report, and print when the run memorised and generalised."""
    from triplepoint.experiments.folders import run_document

    page = write_report(run.path)
    if json:
        print_json(run_document(run))
        return
    out = console(to_stderr=False)
    out.print(_headline(run), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("", "step", "slow time", "seconds"):
        table.add_column(column, justify="left" if not column else "right")
    times = run.facts["times"]
    for name, label in LABELS.items():
        if name in times:
            table.add_row(label, *_time_cells(times[name]))
    out.print(table)
    if any(time["step"] is None for time in times.values()):
        out.print(
            "> N: not held over three evaluations in a row from any step up to N.", style="dim"
        )
    out.print(run.facts["scope"], style="dim")
    out.print(f"Report: {page}", soft_wrap=True)


def _headline(run: GrokRun) -> str:
    accuracy = run.last("val_accuracy")
    if run.facts.get("outcome") == "diverged":
        step = run.series("train_loss")[0][-1]
        return f"{run.facts['task']}: diverged, the loss is not finite at step {step:,}."
    samples = run.facts["samples"]["val"]
    says = f"{run.facts['task']}: held-out accuracy {accuracy:.1%} of {samples} samples at the end"
    C = run.last("complexity")
    return says + (f", complexity C = {C:.1f}." if C is not None else ".")


def _time_cells(time: dict) -> list[str]:
    if time["step"] is None:
        return [f"> {time['censored_at']:,}", "", ""]
    slow, seconds = time.get("slow_time"), time.get("seconds")
    return [
        f"{time['step']:,}",
        "" if slow is None else f"{slow:.3g}",
        "" if seconds is None else f"{seconds:.1f}",
    ]


def _more_cells(end: ToyEnd) -> list[str]:
    if end.expected is None:
        return [f"{end.norm_sq:.4f}", f"{end.sigma_min:.2g}"]
    x = end.expected
    steps = [
        f"step {x[name]:,.0f}" if x[name] < 1e7 else f"step {x[name]:.1e}"
        for name in ("fit_steps", "drift_steps")
    ]
    return [f"{x['w']:.4f}", f"{x['train_floor']:.2e}", *steps, f"{x['largest_difference']:.0e}"]


def show_toy(ends: Sequence[ToyEnd], page: Path) -> None:
    """Print where each lam ended, beside the closed form where there is one."""
    out = console(to_stderr=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    exact = ends[0].expected is not None
    columns = ["lam", "end", "train loss"]
    columns += (
        ["exact end", "floor", "fit until", "drift until", "difference"]
        if exact
        else ["V", "sigma_min"]
    )
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for end in ends:
        theta = ", ".join(f"{w:.4f}" for w in end.theta[:3]) + (
            ", .." if len(end.theta) > 3 else ""
        )
        table.add_row(f"{end.lam:g}", f"({theta})", f"{end.train_loss:.2e}", *_more_cells(end))
    out.print(table)
    if exact:
        out.print(
            "The drift's steps go with 1/lam: half the decay, twice the wait. The difference is that between "
            "gradient descent and its closed form, the largest over all steps.",
            style="dim",
        )
    elif any(end.towards_singular for end in ends):
        out.print(
            "sigma_min has fallen below a twentieth of its start: the run heads into a singular point, where the "
            "zero-loss set is no manifold.",
            style="dim",
        )
    out.print(f"Report: {page}", soft_wrap=True)


def show_analysis(found: dict, page: Path) -> None:
    """Print what a checkpoint is like, and what lies ahead of it."""
    out = console(to_stderr=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    for label, name, spec in (
        ("train accuracy", "train_accuracy", ".1%"),
        ("held-out accuracy", "test_accuracy", ".1%"),
        ("held-out accuracy, head refitted on training samples", "refit_test_accuracy", ".1%"),
        ("complexity C = ||W1|| ||W2*||", "complexity", ".1f"),
        ("squared norm of all weights", "norm_sq", ".1f"),
        ("tau: share of it that decay can still remove", "tau", ".3f"),
        ("distance from the zero-loss manifold", "off_manifold_distance", ".2g"),
        ("smallest singular value of J", "sigma_min", ".2g"),
        ("share of a unit's power in its best frequency", "unit_concentration", ".1%"),
    ):
        if found[name] is not None:
            table.add_row(label, format(found[name], spec))
    out.print(f"{found['task']}", style="bold")
    out.print(table)
    for question, answer in ahead_rows(found if found["fast_forward"] else {}):
        out.print(f"[bold]{question}[/bold] {answer}", soft_wrap=True)
    left_out = [part for part in found["applies"] if not part["applies"]]
    for part in left_out:
        out.print(f"Left out, {part['part']}: {part['reason']}.", style="dim", soft_wrap=True)
    out.print(f"Report: {page}", soft_wrap=True)
