"""Curves of a grokking run along its steps: accuracies and losses, norms and C, tangent diagnostics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from triplepoint.report.formats import known
from triplepoint.report.grok_axes import MARKED, Run, curve_of
from triplepoint.report.grok_panels import Level, Panel, Quantity, stacked
from triplepoint.report.series import COLOURS, Series
from triplepoint.report.sites import shade

BLUE, ORANGE, GREEN, PINK = COLOURS[:4]
TRUST = 0.02
"""Below this eps the first-order picture of the drift holds to a few percent."""
DEPTH = 1e-8
"""Share of the largest loss below which losses are drawn at the edge: an exact fit would squash the rest."""
DASHES = ("solid", "dash", "dot", "dashdot")
NAMED = 6
"""Parameters with a colour each; more get shades, light for the first layers."""

Marks = Sequence[tuple[str, int]]
"""(name, step) of what is marked across the panels."""

ACCURACIES = (
    Quantity("train_accuracy", "train", MARKED, "dot"),
    Quantity("refit_val_accuracy", "validation, head refitted", ORANGE, "dash"),
    Quantity("val_accuracy", "validation", BLUE, "solid"),
    Quantity("zero_loss_share", "exactly zero loss", PINK, "dashdot"),
)
LOSSES = (
    Quantity("train_loss", "train", MARKED, "dot"),
    Quantity("val_loss", "validation", BLUE, "solid"),
)
COSINES = (
    Quantity("cosine_kink", "tangent and kinks", GREEN, "dash"),
    Quantity("cosine_tangent", "tangent", BLUE, "solid"),
    Quantity("cosine_weights", "null: the weights themselves", MARKED, "dot"),
)
SHARES = (
    Quantity("tangent_share_update", "update", BLUE, "solid"),
    Quantity("tangent_share_gradient", "loss gradient", ORANGE, "dash"),
    Quantity("tau", "weights (tau)", GREEN, "dashdot"),
    Quantity("stuck_share", "stuck units", PINK, "dot"),
)


def curve_figure(
    series: Series, runs: Sequence[Run], marks: Marks, *, unit: str, clock: str = "steps"
) -> dict | None:
    """Return accuracies and, below, losses; ``unit`` is the losses', ``clock`` says what a step is."""
    panels = [
        Panel("accuracy", 260, _seen(series, runs, ACCURACIES), percent=True),
        Panel(f"loss, {unit}", 200, LOSSES, log=True, floor=_floor(series, runs, LOSSES)),
    ]
    return stacked(series, runs, panels, marks=marks, clock=clock)


def _seen(series: Series, runs: Sequence[Run], quantities: Sequence[Quantity]) -> list[Quantity]:
    """Leave out the share of zero losses where it stays 0: no collapse, nothing to see."""
    zero = [v for r in runs for v in curve_of(series, r, "zero_loss_share").values() if known(v)]
    return [q for q in quantities if q.metric != "zero_loss_share" or any(zero)]


def _values(series: Series, runs: Sequence[Run], quantities: Sequence[Quantity]) -> Iterator[float]:
    """Yield all finite values of all curves."""
    for run in runs:
        for q in quantities:
            yield from filter(known, curve_of(series, run, q.metric, q.site).values())


def _floor(series: Series, runs: Sequence[Run], quantities: Sequence[Quantity]) -> float | None:
    """Return the smallest value that is drawn at its own height; None where none is above 0."""
    return DEPTH * max(_values(series, runs, quantities), default=0) or None


def _wide(series: Series, runs: Sequence[Run], quantities: Sequence[Quantity]) -> bool:
    """Tell whether values are positive and span more than a factor 8."""
    values = list(_values(series, runs, quantities))
    return bool(values) and min(values) > 0 and max(values) / min(values) > 8


def toy_figure(
    series: Series, runs: Sequence[Run], floors: Mapping[str, Mapping[str, float]], *, unit: str
) -> dict | None:
    """Return the losses of a toy on logarithmic axes, with the floors of the closed form, and what drifts.

    Args:
        series: The records.
        runs: One for each weight of the norm.
        floors: Metric -> arm -> where the closed form says it ends.
        unit: Of the losses.
    """
    panels = []
    for metric, name in (("train_loss", "training loss"), ("val_loss", "test loss")):
        line = [Quantity(metric, name, BLUE, "solid")]
        levels = [
            Level(floors[metric][run.arm.name], colour=run.arm.colour if len(runs) > 1 else MARKED)
            for run in runs if floors.get(metric, {}).get(run.arm.name, 0) > 0
        ]  # fmt: skip
        title = f"{name}, {unit}"
        panels.append(
            Panel(title, 210, line, log=True, levels=levels, floor=_floor(series, runs, line))
        )
    panels.append(Panel("squared norm", 120, [Quantity("norm_sq", "squared norm", BLUE, "solid")]))
    sigma = [Quantity("sigma_min", "smallest singular value of J", BLUE, "solid")]
    panels.append(Panel("sigma_min", 120, sigma, log=_wide(series, runs, sigma)))
    return stacked(series, runs, panels)


def norm_figure(
    series: Series, runs: Sequence[Run], marks: Marks, *, clock: str = "steps"
) -> dict | None:
    """Return squared norms by parameter and, below, the complexity C."""
    sites = list(
        dict.fromkeys(s for r in runs for s in series.by_site.get(("weight_norm_sq", r.arm.key), ()))
    )  # fmt: skip
    norms = [_norm_of(site, place, len(sites)) for place, site in enumerate(sites)]
    norms.append(Quantity("norm_sq", "all parameters", MARKED, "dot"))
    panels = [
        Panel("squared norm", 230, norms, log=_wide(series, runs, norms)),
        Panel("C", 170, [Quantity("complexity", "C", BLUE, "solid")]),
    ]
    return stacked(series, runs, panels, marks=marks, clock=clock)


def _norm_of(site: str, place: int, sites: int) -> Quantity:
    if sites <= NAMED:
        return Quantity("weight_norm_sq", site, COLOURS[place], DASHES[place % len(DASHES)], site)
    return Quantity("weight_norm_sq", site, shade(BLUE, place / (sites - 1)), "solid", site)


def tangent_figure(series: Series, runs: Sequence[Run], marks: Marks) -> dict | None:
    """Return the tangent diagnostics: cosines with their null, speed ratio, eps with its limit, shares."""
    ratio = Quantity("speed_ratio", "update / prediction", BLUE, "solid")
    validity = Quantity("validity", "lambda / sigma_min(J)\N{SUPERSCRIPT TWO}", BLUE, "solid")
    panels = [
        Panel("cosine", 170, COSINES),
        Panel("speed ratio", 105, [ratio], levels=[Level(1.0)]),
        Panel("eps", 115, [validity], log=True, levels=[Level(TRUST, f"trusted below {TRUST}")]),
        Panel("share", 125, SHARES, percent=True),
    ]
    return stacked(series, runs, panels, marks=marks)
