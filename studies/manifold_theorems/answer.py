"""Stored records -> the study's tables and figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np

from studies.grokking_paper.rows import first_at, read_points
from studies.manifold_theorems.decays import LAMBDAS
from studies.manifold_theorems.scaling import exponent, local_exponent
from triplepoint.records import Record

Rows = dict[str, list[Record]]
Looks = dict[str, list[float]]
"""Metric -> its values along one run, in order."""

FIT_BELOW = 0.01
"""Largest decay that exponents are fitted on: above it eps exceeds 0.03 and the first order is not all."""

QUANTITIES: dict[str, Callable[[float, Looks], float]] = {
    "distance": lambda lam, run: max(run["distance"]),
    "drift speed": lambda lam, run: 2 * lam * run["speed_in_slow_time"][-1],
    "drift time": lambda lam, run: run["flow_time_to_fall"][0],
    "foot from limit": lambda lam, run: max(run["foot_from_limit"]),
    "theta from limit": lambda lam, run: max(run["distance_from_limit"]),
}
"""What is claimed to be a power of the decay, from its value and a run; speed and time in flow time."""


def answer(stored: Rows) -> dict[str, object]:
    """Print the tables, and return the figures."""
    figures: dict[str, object] = {}
    runs = decay_runs(stored)
    for act in dict.fromkeys(act for act, _, _ in runs):
        figures[act] = decay_table(act, {k[1:]: run for k, run in runs.items() if k[0] == act})
    figures["targets"] = target_table(stored)
    figures["lag"] = lag_table(stored)
    return figures


def decay_runs(stored: Rows) -> dict[tuple[str, float, int], Looks]:
    """Return (activation, lam, seed) -> what was seen along that run."""
    runs: dict[tuple[str, float, int], Looks] = {}
    for name, rows in stored.items():
        if name.startswith("decays_"):
            for r in rows:
                if r.arm and " lam " in r.arm:
                    act, lam = r.arm.split(" lam ")
                    key = (act, float(lam), r.seed)
                    runs.setdefault(key, {}).setdefault(r.metric, []).append(r.value)
    return runs


def decay_table(act: str, runs: dict[tuple[float, int], Looks]) -> dict[str, object]:
    """One row per decay: means over the starts, of the last look or of the extreme one."""
    print(
        f"\n{act}\n\n| lam | starts | eps | distance / lam | largest cos / distance "
        "| cos | update cosine | speed ratio | flow time to V = 0.98 | foot from limit / lam |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    ratios = {}
    for lam in LAMBDAS:
        group = [run for (decay, _), run in runs.items() if decay == lam]
        if not group:
            continue
        ratios[lam] = max(max(cosine_per_distance(run)) for run in group)
        limit = [max(run["foot_from_limit"]) / lam for run in group if "foot_from_limit" in run]
        print(
            f"| {lam:g} | {len(group)} | {_mean(group, 'eps'):.2g} | {_mean(group, 'distance') / lam:.2f} | {ratios[lam]:.4f} "
            f"| {_mean(group, 'gradient_cosine'):.2g} | {_mean(group, 'update_cosine'):.6f} "
            f"| {_mean(group, 'speed_ratio'):.4f} | {_mean(group, 'flow_time_to_fall'):.3g} "
            f"| {f'{statistics.mean(limit):.3f}' if limit else '-'} |"
        )
    found: dict[str, object] = {
        "cos_per_distance": {f"{k:g}": round(v, 4) for k, v in ratios.items()}
    }
    return found | exponent_table(runs)


def cosine_per_distance(run: Looks) -> list[float]:
    """The quantity that the theorem of orthogonality bounds, along a run."""
    return [c / d for c, d in zip(run["gradient_cosine"], run["distance"], strict=True)]


def exponent_table(runs: dict[tuple[float, int], Looks]) -> dict[str, list[float]]:
    """Exponents of the decay, over those at most ``FIT_BELOW``."""
    print(
        f"\n| power of lam, lam <= {FIT_BELOW:g} | exponent | 95 % interval "
        "| between the two smallest, by start |\n|---|---|---|---|"
    )
    found = {}
    for name, quantity in QUANTITIES.items():
        by_seed: dict[int, dict[float, float]] = {}
        for (lam, seed), run in runs.items():
            if lam <= FIT_BELOW and ("foot_from_limit" in run or "limit" not in name):
                by_seed.setdefault(seed, {})[lam] = quantity(lam, run)
        if not by_seed or min(map(len, by_seed.values())) < 2:
            continue
        a, low, high = exponent(by_seed)
        last = [local_exponent(ys) for ys in by_seed.values()]
        print(
            f"| {name} | {a:.3f} | {low:.3f} to {high:.3f} | {', '.join(f'{v:.3f}' for v in last)} |"
        )
        found[name] = [round(v, 4) for v in (a, low, high)]
        found[f"{name}, smallest"] = [round(v, 4) for v in last]
    return found


def target_table(stored: Rows) -> dict[str, object]:
    """Distribution of the smallest singular value over targets, and the constructed exception."""
    found: dict[str, object] = {}
    if rows := stored.get("targets_random"):
        lowest = [r.value for r in rows if r.metric == "lowest_sigma_min"]
        first = [r.value for r in rows if r.metric == "first_sigma_min"]
        marks = dict(zip(("lowest", "1 %", "10 %", "median", "highest"), np.quantile(lowest, [0, 0.01, 0.1, 0.5, 1]), strict=True))  # fmt: skip
        print(
            f"\nSmallest singular value of J along training, {len(lowest)} random targets (start: {min(first):.3f} to {max(first):.3f})\n"
        )
        print("| " + " | ".join(marks) + " |\n|" + "---|" * len(marks))
        print("| " + " | ".join(f"{v:.4f}" for v in marks.values()) + " |")
        found["random"] = {"targets": len(lowest)} | {
            k: round(float(v), 5) for k, v in marks.items()
        }
    if rows := stored.get("targets_zero"):
        sigma = [r.value for r in rows if r.metric == "sigma_min"]
        t = [r.value for r in rows if r.metric == "t"]
        rank, full = next((r.value, r.n) for r in rows if r.metric == "rank_at_origin")
        print(
            f"\nZero labels: {sigma[0]:.3f} at the start, {sigma[-1]:.2g} at t = {t[-1]:g}; rank of J at theta = 0: {rank:g} of {full}"
        )
        found["zero"] = {
            "first": round(sigma[0], 4),
            "last": float(f"{sigma[-1]:.3g}"),
            "rank_at_origin": rank,
            "rows": full,
        }
    return found


def lag_table(stored: Rows) -> dict[str, object]:
    """Slow times of the isolated flow and of joint training from the same start."""
    found: dict[str, object] = {}
    reference = stored.get("lag_isolated")
    if not reference:
        return found
    base = read_points(reference, "isolated")
    print(
        "\n| run | t at 50 % | t at 99 % | lag at 50 % | lag at 99 % | test accuracy at the end, t |"
    )
    print("|---|---|---|---|---|---|")
    for name, rows in stored.items():
        if not name.startswith("lag_"):
            continue
        points = read_points(rows, rows[0].arm)
        times = [_time(points, a) for a in (0.5, 0.99)]
        lags = [
            t / b if t and b else None
            for t, b in zip(times, (_time(base, 0.5), _time(base, 0.99)), strict=True)
        ]
        end = points[-1]
        print(
            f"| {rows[0].arm} | {_or_later(times[0], end.t)} | {_or_later(times[1], end.t)} | {_or_dash(lags[0])} "
            f"| {_or_dash(lags[1])} | {end.test_accuracy:.3f}, {end.t:.1f} |"
        )
        found[rows[0].arm] = {"t_50": times[0], "t_99": times[1], "lag_50": _round(lags[0]), "lag_99": _round(lags[1])}  # fmt: skip
    return found


def _time(points: Sequence, accuracy: float) -> float | None:
    point = first_at(points, accuracy)
    return round(point.t, 3) if point else None


def _mean(group: Sequence[Looks], metric: str) -> float:
    """Mean of the last look over the starts."""
    return statistics.mean(run[metric][-1] for run in group)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _or_later(value: float | None, end: float) -> str:
    return f"> {end:.1f}" if value is None else f"{value:.2f}"
