"""Stored records -> the study's tables and figures."""

from __future__ import annotations

from statistics import mean, median

from studies.adamw_addition.cells import CROSS_ENTROPY, MSE, Run, isolated_name
from studies.adamw_addition.curves import Curves, Lag, curves_of, forecast_errors
from triplepoint.records import Record
from triplepoint.statistics import wilson

Rows = dict[str, list[Record]]
LEVELS = (0.1, 0.5, 0.9, 0.99)
AT_SEVEN_TENTHS = {run.name for run in MSE if run.fraction == 0.7}
WITHIN = 0.15
"""How near to the isolated flow's C at 99 % the real one was expected."""


def answer(stored: Rows) -> dict[str, object]:
    """Print the tables, and return the figures."""
    return {
        "complexity": _complexity(stored),
        "cross_entropy": _refit_lead(stored, CROSS_ENTROPY, "cross-entropy"),
        "mse_refit": _summary(_refit_lead(stored, MSE, "squared error")),
        "forecast": _forecast(lags(stored), "every fraction"),
        "forecast_one_fraction": _forecast(
            [run for run in lags(stored) if run.name in AT_SEVEN_TENTHS], "fraction 0.7 only"
        ),
    }


def _complexity(stored: Rows) -> dict[str, object]:
    """Is C at 99 % held out that of the isolated flow on the same split?"""
    print("Squared error: steps, C (with the refitted head) and V\n")
    print(
        "| lr | wd | fraction | seed | 50 % | 99 % | lr wd steps | C at 50 % | C at 99 % | C isolated "
        "| off by | V at 99 % | V memorised (max after) |\n|" + "---|" * 13
    )
    off, V99 = {}, []
    for run in MSE:
        reference = stored.get(isolated_name(run.split))
        if run.name not in stored or reference is None:
            continue
        real, flow = curves_of(stored[run.name]), curves_of(reference, "isolated_from_start")
        half, full = (real.when("val_accuracy", goal) for goal in (0.5, 0.99))
        C, C_flow = (
            real.at("complexity", full),
            flow.at("complexity", flow.when("val_accuracy", 0.99)),
        )
        if C is not None and C_flow is not None:
            off[run.name] = C / C_flow - 1
            V99.append(real.at("norm_sq", full))
        later = [v for step, v in real.of["norm_sq"].items() if step >= (real.memorised_at or 0)]
        print(
            f"| {run.lr:g} | {run.decay:g} | {run.fraction:g} | {run.seed} | {_step(half, real)} "
            f"| {_step(full, real)} | {_number(full and full * run.lr * run.decay, '.2f')} "
            f"| {_number(real.at('complexity', half), '.1f')} | {_number(C, '.1f')} "
            f"| {_number(C_flow, '.1f')} | {_number(off.get(run.name), '+.1%')} "
            f"| {_number(real.at('norm_sq', full), '.0f')} "
            f"| {later[0]:.0f} ({max(later):.0f}) |"
        )
    if not off:
        return {}
    near = sum(abs(x) <= WITHIN for x in off.values())
    low, high = wilson(near, len(off))
    print(
        f"\n- within {WITHIN:.0%} of the isolated C: {near} of {len(off)} [{low:.2f}, {high:.2f}]"
    )
    return {
        "within_15_percent": near,
        "runs": len(off),
        "off_by": {name: round(x, 3) for name, x in off.items()},
        "V99_range": [round(min(V99)), round(max(V99))],
    }


def _refit_lead(
    stored: Rows, runs: tuple[Run, ...], title: str
) -> dict[str, dict[str, list[int | None]]]:
    """When does the refitted head reach a level, and when the net's own?"""
    print(f"\n{title}: steps to held-out accuracy, own head / refitted head (C there)\n")
    print("| run | " + " | ".join(f"{level:.0%}" for level in LEVELS) + " | own at the end | refitted at the end | zero-loss share at the end |")  # fmt: skip
    print("|" + "---|" * (len(LEVELS) + 4))
    found = {}
    for run in runs:
        if run.name not in stored:
            continue
        real = curves_of(stored[run.name])
        own, refit = ({x: real.when(metric, x) for x in LEVELS} for metric in ("val_accuracy", "refit_val_accuracy"))  # fmt: skip
        print(
            f"| {run.name} | "
            + " | ".join(
                f"{_step(own[x], real)} / {_step(refit[x], real)} ({_number(real.at('complexity', refit[x]), '.0f')})"
                for x in LEVELS
            )
            + f" | {real.at('val_accuracy', real.last):.3f} | {real.at('refit_val_accuracy', real.last):.3f} "
            f"| {_number(real.at('zero_loss_share', real.last), '.2f')} |"
        )
        found[run.name] = {f"{x:g}": [own[x], refit[x]] for x in LEVELS}
    return found


def _summary(found: dict[str, dict[str, list[int | None]]]) -> dict[str, object]:
    """In how many runs does the refitted head come first, and by which share of the own head's steps?"""
    figures = {}
    print()
    for level in (f"{x:g}" for x in LEVELS):
        pairs = [steps[level] for steps in found.values() if None not in steps[level]]
        if pairs:
            first = sum(refit < own for own, refit in pairs)
            lead = median(1 - refit / own for own, refit in pairs)
            print(
                f"- at {level}: refitted head first in {first} of {len(pairs)}, median lead {lead:.0%}"
            )
            figures[level] = [first, len(pairs), round(lead, 3)]
    return figures


def lags(stored: Rows) -> list[Lag]:
    """Return the runs that grokked, as the fast-forward law sees them."""
    found = []
    for run in MSE:
        if run.name not in stored:
            continue
        real = curves_of(stored[run.name])
        flow = curves_of(stored[run.name], "isolated_from_memorised")
        grokked, reached = (
            real.when("val_accuracy", 0.99),
            flow.of and flow.when("val_accuracy", 0.99),
        )
        if grokked is None or not reached:
            continue
        per_step = run.lr * run.decay
        found.append(
            Lag(
                name=run.name,
                isolated_t=flow.of["slow_time"][reached],
                real_t=(grokked - real.memorised_at) * per_step,
                slow_time_per_step=per_step,
            )
        )
    return found


def _forecast(runs: list[Lag], title: str) -> dict[str, object]:
    """Leave-one-out errors of the fast-forward law against always saying the median."""
    if len(runs) < 2:
        return {}
    errors = forecast_errors(runs)
    print(f"\nSteps from memorisation to 99 % held out, each run from the others: {title}\n")
    print("| run | isolated slow time | real slow time | lag | error: fast-forward law | median slow time | median steps |")  # fmt: skip
    print("|" + "---|" * 7)
    for i, run in enumerate(runs):
        print(
            f"| {run.name} | {run.isolated_t:.2f} | {run.real_t:.2f} | {run.lag:.2f} | "
            + " | ".join(f"{errors[law][i]:.1%}" for law in errors) + " |"
        )  # fmt: skip
    figures: dict[str, object] = {
        "runs": len(runs),
        "lag_median": round(median(run.lag for run in runs), 2),
        "lag_range": [round(f(run.lag for run in runs), 2) for f in (min, max)],
    }
    print()
    for law, of in errors.items():
        print(f"- {law}: mean error {mean(of):.1%}, median {median(of):.1%}, worst {max(of):.1%}")
        figures[law] = {"mape": round(mean(of), 3), "median": round(median(of), 3)}
    for other in ("median_slow_time", "median_steps"):
        wins = sum(a < b for a, b in zip(errors["fast_forward"], errors[other], strict=True))
        low, high = wilson(wins, len(runs))
        print(f"- nearer than {other}: {wins} of {len(runs)} [{low:.2f}, {high:.2f}]")
        figures[f"nearer_than_{other}"] = [wins, len(runs), round(low, 3), round(high, 3)]
    return figures


def _step(step: int | None, real: Curves) -> str:
    return f"> {real.last}" if step is None else str(step)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
