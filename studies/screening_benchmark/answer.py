"""The tables of the benchmark, and its figures."""

from __future__ import annotations

from collections.abc import Sequence

from studies.screening_benchmark.miniature_cells import KS, MiniatureSign
from studies.screening_benchmark.rivals import RIVALS
from triplepoint.evidence import (
    ENDPOINTS,
    LOOKS,
    BenchmarkCell,
    Endpoint,
    Held,
    Rule,
    Score,
    held_out,
    score,
)
from triplepoint.screening.rule import LatenessRule

LOOK = 500
FIRST = "stdlib"
"""The corpus that rules were chosen on."""


def answer(cells: Sequence[BenchmarkCell]) -> dict[str, object]:
    """Print every table; return the figures, of the first corpus alone."""
    known = [cell for cell in cells if cell.truth is not None]
    first = [cell for cell in known if cell.setting.corpus == FIRST]
    _contents(cells)
    scores = {by: _scores(LatenessRule(), first, look=LOOK, by=by) for by in ("group", "scale")}
    rules = [*RIVALS, *(MiniatureSign(k=k) for k in sorted(KS))]
    rivals = {rule: _scores(rule, first, look=LOOK, by="scale") for rule in rules}
    figures: dict[str, object] = {
        "clear_cells": sum(any(c.truth[e].clear for e in ENDPOINTS) for c in first),
        "groups": len({c.setting.group for c in first}),
    }
    for endpoint in ENDPOINTS:
        print(f"\n## {endpoint}, step {LOOK}\n")
        print(HEAD)
        for by in ("group", "scale"):
            print(_row(f"**lateness**, {by} held out", scores[by][endpoint]))
        for rule, found in rivals.items():
            print(_row(f"{rule.name}, scale held out", found[endpoint]))
        free = [found[endpoint] for rule, found in rivals.items() if not rule.trains]
        figures[endpoint] = _figures(scores["group"][endpoint], scores["scale"][endpoint], free)
    _by_look(first)
    _second(first, [cell for cell in known if cell.setting.corpus != FIRST])
    return figures


def _scores(
    rule: Rule, cells: Sequence[BenchmarkCell], *, look: int, by: str
) -> dict[Endpoint, Score]:
    held = held_out(rule, cells, look=look, by=by)
    return {endpoint: score(held, endpoint) for endpoint in ENDPOINTS}


def _figures(group: Score, scale: Score, rivals: Sequence[Score]) -> dict[str, object]:
    """Return the figures; ``rivals`` are those that train nothing."""
    known = [r.balanced_accuracy for r in rivals if r.balanced_accuracy is not None]
    both = scale.balanced_accuracy is not None
    return {
        "classes": list(scale.classes),
        "logo_balanced_accuracy": group.balanced_accuracy,
        "loso_balanced_accuracy": scale.balanced_accuracy,
        "loso_lower_bound": scale.balanced_accuracy_lower,
        "loso_coverage": scale.coverage if both else None,
        "loso_class_coverage": list(scale.class_coverage) if both else None,
        "best_baseline": max(known) if known else None,
        "brier_skill": scale.brier_skill,
    }


HEAD = (
    "| rule | candidate, baseline wins | answered | right | balanced accuracy | lower bound | Brier skill | calibration slope |\n"
    "|---|---|---|---|---|---|---|---|"
)


def _row(name: str, found: Score) -> str:
    told = lambda value, form=".2f": "-" if value is None else format(value, form)  # noqa: E731
    slope = found.calibration and found.calibration.slope
    return (
        f"| {name} | {found.classes[0]}, {found.classes[1]} | {sum(found.answered)} ({told(found.coverage, '.0%')}; "
        f"{', '.join(told(c, '.0%') for c in found.class_coverage)}) | {sum(found.right)} "
        f"| {told(found.balanced_accuracy)} | {told(found.balanced_accuracy_lower)} | {told(found.brier_skill)} | {told(slope)} |"
    )


def _contents(cells: Sequence[BenchmarkCell]) -> None:
    groups = {c.setting.group for c in cells}
    gone = sum(c.truth is None for c in cells)
    print(
        f"{len(cells)} cells in {len(groups)} groups; in {gone} an arm diverged, and there is nothing to compare.\n"
    )
    print(
        "| endpoint | candidate wins | baseline wins | ties | candidate wins of |\n|---|---|---|---|---|"
    )
    for endpoint in ENDPOINTS:
        winners = [c.truth[endpoint].winner for c in cells if c.truth]
        of = sorted({c.candidate for c in cells if c.truth and c.truth[endpoint].winner == "candidate"})  # fmt: skip
        counts = [winners.count(w) for w in ("candidate", "baseline", "tie")]
        print(f"| {endpoint} | {counts[0]} | {counts[1]} | {counts[2]} | {', '.join(of)} |")


def _by_look(cells: Sequence[BenchmarkCell]) -> None:
    print("\n## The rule by look, scale held out\n")
    print(HEAD.replace("| rule |", "| endpoint, step |"))
    for look in LOOKS:
        found = _scores(LatenessRule(), cells, look=look, by="scale")
        for endpoint in ENDPOINTS:
            print(_row(f"{endpoint}, {look}", found[endpoint]))


def _second(first: Sequence[BenchmarkCell], second: Sequence[BenchmarkCell]) -> None:
    if not second:
        return
    rule = LatenessRule().fit(first, LOOK)
    held = [Held(cell=c, prediction=rule.predict(c.seen(LOOK)), fold="second") for c in second]
    print("\n## The second corpus: fitted on the first, scored once\n")
    print(HEAD.replace("| rule |", "| endpoint |"))
    for endpoint in ENDPOINTS:
        print(_row(endpoint, score(held, endpoint)))
