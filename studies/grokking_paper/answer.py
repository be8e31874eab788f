"""Stored records -> the study's tables and figures."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from studies.grokking_paper.cells import FOURIER, PINNED, SCALES
from studies.grokking_paper.rows import first_at, last_below, read_points
from triplepoint.grokking import Point
from triplepoint.records import Record

Rows = dict[str, list[Record]]
CHANCE_BELOW = 0.05
"""Test accuracy that counts as not generalising; chance is 1/p = 0.027 for p = 37."""


def answer(stored: Rows) -> dict[str, object]:
    """Print the tables, and return the figures."""
    paper = [rows for name, rows in stored.items() if name.startswith("paper_")]
    narrow = [rows for name, rows in stored.items() if name.startswith("narrow_")]
    figures: dict[str, object] = {}
    for name, group in (("paper", paper), ("narrow", narrow)):
        if group:
            figures[name] = paper_table(name, group)
    figures["controls"] = control_table(stored)
    figures["init_scale"] = scale_table(stored)
    figures["pinned"] = pin_table(stored)
    return figures


def paper_table(name: str, group: list[list[Record]]) -> dict[str, object]:
    """The paper's simulation: when it groks, and what the embedding looks like at the end."""
    reading = "variance" if name == "paper" else "standard deviation"
    print(f"\nThe paper's simulation, p^-1/2 read as a {reading}\n")
    print(
        "| seed | last < 5 % | 50 % | 99 % | 100 % | C at 99 % | train accuracy, lowest | train SSE, highest |"
    )
    print("|---|---|---|---|---|---|---|---|")
    runs = [read_points(rows, "paper") for rows in group]
    for rows, points in zip(group, runs, strict=True):
        below, half, grokked, whole = milestones(points)
        print(
            f"| {rows[0].seed} | {_step(below)} | {_step(half)} | {_step(grokked)} | {_step(whole)} "
            f"| {_complexity(grokked)} | {_lowest_train(points):g} "
            f"| {_highest_sse(points):.1e} |"
        )
    fourier = fourier_table(group)
    marks = [milestones(points) for points in runs]
    return {
        "last_below_5": [_step(m[0]) for m in marks],
        "step_50": [_step(m[1]) for m in marks],
        "step_99": [_step(m[2]) for m in marks],
        "step_100": [_step(m[3]) for m in marks],
        "C_99": [_complexity(m[2]) for m in marks],
        "train_accuracy_lowest": min(map(_lowest_train, runs)),
        "train_sse_highest": max(map(_highest_sse, runs)),
        "fourier_end": fourier,
    }


def milestones(points: Sequence[Point]) -> tuple[Point | None, ...]:
    """Return the last point below 5 % and the first ones at 50, 99 and 100 %."""
    return last_below(points, CHANCE_BELOW), *(first_at(points, a) for a in (0.5, 0.99, 1.0))


def fourier_table(group: list[list[Record]]) -> dict[str, list[float]]:
    """The embedding in Fourier space, at the start and at the end."""
    print("\n| embedding | start | end, by seed |\n|---|---|---|")
    found = {}
    for metric in FOURIER:
        seen = [sorted((r.step, r.value) for r in rows if r.metric == metric) for rows in group]
        first, last = ([values[i][1] for values in seen] for i in (0, -1))
        print(f"| {metric} | {min(first):.3f} to {max(first):.3f} | {_list(last, '.4f')} |")
        found[metric] = [round(v, 4) for v in last]
    return found


def control_table(stored: Rows) -> dict[str, object]:
    """Training with decay until it groks, and without for three times as long."""
    print("\nWithout weight decay, for three times as long as training with decay took to 99 %\n")
    print(
        "| training | grokked at | C there | watched without decay | highest test accuracy | at the end | train SSE |"
    )
    print("|---|---|---|---|---|---|---|")
    found = {}
    for name, rows in stored.items():
        if not name.startswith(("adamw_", "joint_")):
            continue
        grokking, free = (read_points(rows, arm) for arm in dict.fromkeys(r.arm for r in rows))
        grokked = first_at(grokking, 0.99)
        best = max(p.test_accuracy for p in free)
        print(
            f"| {name} | {_step(grokked)} | {_complexity(grokked)} | {free[-1].step} | {best:.3f} | {free[-1].test_accuracy:.3f} "
            f"| {free[-1].sse:.1e} |"
        )
        found[name] = {
            "grokked_at": _step(grokked),
            "C_99": _complexity(grokked),
            "watched": free[-1].step,
            "test_highest": round(best, 4),
            "test_end": round(free[-1].test_accuracy, 4),
            "train_accuracy_end": free[-1].train_accuracy,
        }
    return found


def scale_table(stored: Rows) -> dict[str, object]:
    """The start scaled by c: slow time to 50 % is that of c = 1 plus ln c."""
    seeds = sorted({int(n.split("seed")[1]) for n in stored if n.startswith("scale")})
    print("\nStart scaled by c, p=23: slow time to 50 % minus that of c = 1\n")
    print(
        "| c | ln c | shift, by seed | angular clock at 50 % (1e-5) | C at 50 % |\n|---|---|---|---|---|"
    )
    halves = {
        (c, seed): first_at(points, 0.5)
        for c in SCALES
        for seed in seeds
        if (points := _arm(stored, f"scale{c:g}_seed{seed}"))
    }
    found = {}
    for c in SCALES:
        pairs = [(halves.get((c, s)), halves.get((1.0, s)), s) for s in seeds]
        pairs = [(p, base, s) for p, base, s in pairs if p and base]
        if not pairs:
            continue
        shifts = [p.t - base.t for p, base, _ in pairs]
        clocks = [1e5 * angular_clock(_arm(stored, f"scale{c:g}_seed{s}"), p) for p, _, s in pairs]
        print(
            f"| {c:g} | {math.log(c):+.3f} | {_list(shifts, '+.3f')} | {_list(clocks, '.2f')} "
            f"| {_list([p.complexity for p, _, _ in pairs], '.1f')} |"
        )
        found[f"{c:g}"] = {"ln_c": round(math.log(c), 4), "shift": [round(x, 3) for x in shifts]}
    doublings = [
        (halves[c2, s].t - halves[c1, s].t) / math.log2(c2 / c1)
        for c1, c2 in itertools.pairwise(SCALES)
        for s in seeds
        if halves.get((c1, s)) and halves.get((c2, s))
    ]
    if doublings:
        low, high = min(doublings), max(doublings)
        found["per_doubling"] = [round(v, 4) for v in (statistics.mean(doublings), low, high)]
        print(
            f"\nPer doubling {statistics.mean(doublings):.3f} ({low:.3f} to {high:.3f}); ln 2 = 0.693"
        )
    return found


def angular_clock(points: Sequence[Point], until: Point) -> float:
    """Return the integral of ||W1||^-4 over slow time: for ReLU, how far the direction has come."""
    path = [p for p in points if p.step <= until.step]
    return sum((b.t - a.t) * (a.W1_sq**-2 + b.W1_sq**-2) / 2 for a, b in itertools.pairwise(path))


def pin_table(stored: Rows) -> dict[str, object]:
    """The first layer held at one norm: twice the square, four times the time."""
    print("\n||W1||^2 held, p=23: slow time\n\n| ||W1||^2 | 50 % | 90 % | C at 50 % | ratio to the line above, 50 and 90 % |\n|---|---|---|---|---|")  # fmt: skip
    found, before = {}, None
    for square in PINNED:
        points = _arm(stored, f"pinned{square}_seed0")
        marks = [first_at(points, a) for a in (0.5, 0.9)] if points else [None]
        if None in marks:
            continue
        times = [m.t for m in marks]
        ratios = [a / b for a, b in zip(times, before, strict=True)] if before else []
        print(
            f"| {square} | {times[0]:.2f} | {times[1]:.2f} | {marks[0].complexity:.1f} "
            f"| {_list(ratios, '.2f') or '-'} |"
        )
        found[str(square)] = {"t_50": round(times[0], 3), "t_90": round(times[1], 3), "ratio": [round(r, 3) for r in ratios]}  # fmt: skip
        before = times
    return found


def _arm(stored: Rows, cell: str) -> list[Point]:
    """Return the trajectory of a cell that holds only one; empty where the cell is missing."""
    rows = stored.get(cell)
    return read_points(rows, rows[0].arm) if rows else []


def _step(point: Point | None) -> int | None:
    return point.step if point else None


def _complexity(point: Point | None) -> float | None:
    return round(point.complexity, 1) if point else None


def _lowest_train(points: Sequence[Point]) -> float:
    return min(p.train_accuracy for p in points)


def _highest_sse(points: Sequence[Point]) -> float:
    return max(p.sse for p in points)


def _list(values: Sequence[float], form: str) -> str:
    return ", ".join(f"{v:{form}}" for v in values)
