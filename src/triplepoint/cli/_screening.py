"""Shared by ``screen``: the plan from its options, progress, and the verdict on a terminal."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from triplepoint.blueprints import Shrunk
from triplepoint.cli._output import Bars, console, print_json
from triplepoint.errors import PlanError
from triplepoint.report import write_report
from triplepoint.runs import read_json
from triplepoint.screening import ASSUMED_FACTOR, Plan
from triplepoint.screening.looks import STEPS, Look, Looks
from triplepoint.screening.shrinking import ShrunkPlan
from triplepoint.screening.words import ENDPOINTS

COLOURS = {"keep": "blue", "replace": "green", "unsafe": "red", "undecided": "yellow"}


def planned(
    *,
    steps: int | None,
    planned_steps: int | None,
    planned_tokens: int | None,
    tokens_per_step: int,
    **how: Any,
) -> Plan:
    """Return the plan that the options state, or the assumed one.

    Raises:
        PlanError: If both lengths are given, or one is not positive.
    """
    if planned_steps is not None and planned_tokens is not None:
        raise PlanError(
            "--planned-steps and --planned-tokens both say how long the plan is.\nGive one of them."
        )
    for name, value in (
        ("--steps", steps),
        ("--planned-steps", planned_steps),
        ("--planned-tokens", planned_tokens),
    ):
        if value is not None and value < 1:
            raise PlanError(f"{name} must be at least 1, got {value}.\nGive a positive number.")
    if how["batch"] < 1:
        raise PlanError(f"--batch must be at least 1, got {how['batch']}.\nTry --batch 8.")
    length = planned_steps or (planned_tokens and math.ceil(planned_tokens / tokens_per_step))
    return Plan(steps=length or ASSUMED_FACTOR * (steps or STEPS), assumed=length is None, **how)


class Watcher(contextlib.AbstractContextManager):
    """Says what was assumed, then shows the calibrations' progress."""

    def __init__(self, plan: Plan, looks: Looks, *, train_tokens: int | None, quiet: bool):
        self._looks, self._bars, self._trials = looks, None, None
        self._console = console(to_stderr=quiet)
        self._console.print(_first_line(plan, train_tokens), soft_wrap=True)

    def __call__(self, event: Any, trials: Sequence[Any]) -> None:
        """Show one event."""
        if trials is not self._trials:  # the next round of trials
            self.close()
            self._trials = trials
            several = len({t.recipe.lr for t in trials if t.arm == trials[0].arm}) > 1
            names = [
                f"{t.arm} seed {t.recipe.seed}" + (f" lr {t.recipe.lr:.2g}" if several else "")
                for t in trials
            ]
            self._bars = Bars(names, trials[0].last).__enter__()
        if event.kind == "step":
            self._bars.step(event.index, event.step, event.loss)
        elif event.kind == "done":
            self._bars.done(event.index)

    def looked(self, look: Look) -> None:
        """Show what a screen that goes on until it is sure said at one step."""
        if self._looks.confidence is None:
            return
        self.close()
        each = ", ".join(f"{name} {word}" for name, word in look.candidates.items())
        self._console.print(
            f"Look at step {look.steps} of at most {self._looks.last}: {each}.", soft_wrap=True
        )

    def shrunk(self, model: Shrunk, planned: ShrunkPlan) -> None:
        """Say what is trained in miniature next."""
        self.close()
        plan = planned.plan
        self._console.print(
            f"The whole plan in miniature: {plan.steps} steps of {plan.batch} x {planned.context} tokens, "
            f"{plan.unique_tokens} of them different. {' '.join(planned.notes)}",
            soft_wrap=True,
        )

    def close(self) -> None:
        """Take the bars down."""
        if self._bars is not None:
            self._bars.__exit__()
            self._bars = None

    def __exit__(self, *_: object) -> None:
        self.close()


def _first_line(plan: Plan, train_tokens: int | None) -> str:
    length = f"{plan.steps} steps" + (
        f" (assumed: {ASSUMED_FACTOR} x the calibration)" if plan.assumed else ""
    )
    text = (
        "the whole training split"
        if train_tokens is None
        else f"the first {train_tokens} training tokens"
    )
    return f"Plan: {length} on {text}, peak rate {plan.lr:g}, {plan.schedule}."


def show_screen(folder: Path, *, finished_before: bool, json: bool, explain: bool = False) -> None:
    """Write the report, and print the verdict of a finished screen; with ``explain`` all that its forecasts are made of."""
    verdict = read_json(folder / "verdict.json")
    page = write_report(folder)
    if json:
        print_json({**verdict, "folder": str(folder), "report": str(page)})
        return
    out = console(to_stderr=False)
    if finished_before:
        at = verdict["plan"]["calibration_steps"]
        out.print(
            f"{folder} was finished before; nothing was trained. It is judged at step {at}.",
            soft_wrap=True,
        )
    colour = COLOURS[verdict["verdict"]]
    text = Text(verdict["headline"], style=f"bold {colour}")
    for sentence in verdict["summary"]:
        text.append(f"\n{sentence}", style="not bold default")
    out.print(Panel(text, title=verdict["verdict"].upper(), border_style=colour))
    out.print(_candidates(verdict))
    if explain:
        show_explanation(verdict)
    out.print(_rules(verdict))
    if verdict["cost"].get("confidence") is not None:
        out.print(_saved(verdict["cost"]), soft_wrap=True)
    out.print(f"Report: {page}", soft_wrap=True)


def _candidates(verdict: dict[str, Any]) -> Table:
    table = Table(
        title=f"Against {verdict['baseline']['arm']}; judged at {ENDPOINTS[verdict['criterion']]}"
    )
    for name in (
        "candidate",
        "verdict",
        "at best",
        "at last step",
        "speed r",
        "offset c",
        "sat. > 2",
        "step time",
    ):
        words = name in ("candidate", "verdict")
        table.add_column(name, justify="left" if words else "right", no_wrap=words)
    for c in verdict["candidates"]:
        ends = c["endpoints"]
        table.add_row(
            c["arm"], Text(c["verdict"], style=COLOURS[c["verdict"]]), _delta(ends["best_checkpoint"]),
            _delta(ends["fixed_step"]), _number(c["speed_ratio"], ".2f"), _number(c["offset"], "+.3f"),
            _number(c["saturation_2"], ".2f"), _number(c["step_time_ratio"], ".2f", " x"),
        )  # fmt: skip
    return table


def _saved(cost: dict[str, Any]) -> str:
    decided = "no candidate was undecided"
    ended = "the last look" if cost["steps"] == cost["max_steps"] else decided
    return (
        f"Stopped at step {cost['steps']}, {ended}: {100 * cost['saved_share']:.1f} % of the steps of all arms "
        "and seeds to the plan's end were not trained."
    )


def show_explanation(verdict: dict[str, Any]) -> None:
    """Print every number that the forecasts of a verdict were made of, and what it means."""
    out = console(to_stderr=False)
    for candidate in verdict["candidates"]:
        if not candidate.get("terms"):
            out.print(f"{candidate['arm']}: nothing was forecast, so there is nothing to explain.")
            continue
        table = Table(title=f"What the forecast for {candidate['arm']} was made of")
        for name, justify in (("term", "left"), ("value", "right"), ("meaning", "left")):
            table.add_column(name, justify=justify, no_wrap=name != "meaning")
        for term in candidate["terms"]:
            spread = _number(term["spread"], ".3g") if term["spread"] is not None else None
            value = _number(term["value"], ".4g")
            table.add_row(
                term["label"], f"{value} ± {spread}" if spread else value, term["meaning"]
            )
        out.print(table)


def _delta(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    low, high = (100 * x for x in found["interval"])
    return f"{100 * found['delta_rel']:+.1f} %\n[{low:+.1f}, {high:+.1f}]"


def _number(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


def _rules(verdict: dict[str, Any]) -> Table:
    table = Table(
        title="What simple rules say, and their record on the 12 cells of arXiv 2604.23434"
    )
    for name in ("rule", "says", "record"):
        table.add_column(name)
    for rule in verdict["rules"]:
        table.add_row(rule["name"], rule["says"], rule["record"])
    return table
