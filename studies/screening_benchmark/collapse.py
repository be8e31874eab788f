"""Can a collapse be told early? ``python -m studies.screening_benchmark.collapse``, from the stored runs alone.

A run is watched beside the baseline of its place. What a detector says at a look is held against what became of the run:
a run that was called and left the plateau later is a false alarm, however late it left.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from studies._cells import finish
from studies.screening_benchmark.building import stored_runs
from studies.screening_benchmark.collapse_runs import (
    NEVER,
    SHARP_KL,
    Detector,
    Watched,
    below,
    blind,
    collapsed_alone,
    earlier_form,
    library,
    patient,
    saturated,
    watched,
)
from studies.screening_benchmark.collapse_scoring import (
    Counts,
    Scored,
    ahead,
    ever,
    first_call,
    held_out,
    less,
    patience,
    said_at,
    share,
)
from triplepoint.evidence import LOOKS
from triplepoint.phases import FROZEN_DRIFT, FROZEN_KL
from triplepoint.statistics import auc, permutation_p

DETECTORS: dict[str, Detector] = {
    "**library**": library,
    "library, the word collapsed alone": collapsed_alone,
    "library, earlier form": earlier_form,
    "loss alone": patient(1),
    f"alpha drift < {FROZEN_DRIFT}": below("alpha_drift_std", FROZEN_DRIFT),
    f"prediction KL < {SHARP_KL}": below("prediction_kl", SHARP_KL),
    f"prediction KL < {FROZEN_KL}": below("prediction_kl", FROZEN_KL),
    "saturation >= 0.5": saturated,
}
SCORES: dict[str, Scored] = {
    "alpha drift": less("alpha_drift_std"),
    "prediction KL": less("prediction_kl"),
    "saturation": lambda run, step: run.sign("saturation@2", step),
    "clock left": lambda run, step: -run.clock_left(step),
}
"""Numbers that speak for a collapse the larger they are."""
CUTS = (0.001, 0.005, 0.01, FROZEN_KL, 0.05, math.inf)
"""Of the prediction KL, nats; the last one is the losses alone."""


def main() -> None:
    """Print the tables and the figures."""
    finish("collapse", answer(list(watched(stored_runs()))))


def answer(runs: Sequence[Watched]) -> dict[str, object]:
    """Print every table; return the figures."""
    finished = [run for run in runs if run.diverged_at is None]
    families = ["all", *sorted({run.family for run in finished})]
    of = {f: [run for run in finished if f in ("all", run.family)] for f in families}
    _contents(runs, of)
    _by_look(of)
    _by_cut(finished)
    _left_later(finished)
    _on_the_plateau(finished)
    _by_patience(finished)
    return {
        "runs": {f: len(members) for f, members in of.items()},
        "collapsed": {f: sum(run.collapsed for run in members) for f, members in of.items()},
        "library": {
            f: {str(look): dataclasses.asdict(said_at(library, members, look)) for look in (*LOOKS, "end")}
            for f, members in of.items()
        },
        "warning": _warning(finished),
    }  # fmt: skip


def _contents(runs: Sequence[Watched], of: Mapping[str, Sequence[Watched]]) -> None:
    gone = len(runs) - len(of["all"])
    print(f"{len(runs)} runs beside a baseline; {gone} diverged and are left out.\n")
    print("| family | runs | groups | never left the plateau | left in the second half of the plan |\n|---|---|---|---|---|")  # fmt: skip
    for family, members in of.items():
        collapsed = sum(run.collapsed for run in members)
        late = sum(run.planned / 2 < run.exit.step < math.inf for run in members)
        print(
            f"| {family} | {len(members)} | {len({run.group for run in members})} | {share(collapsed, len(members))} | {late} |"
        )


def _by_look(of: Mapping[str, Sequence[Watched]]) -> None:
    print("\n## What is said at a look\n")
    heads = [f"{f}: collapsed called | {f}: others called" for f in of]
    print(f"| step | rule | {' | '.join(heads)} |\n|---|---|{'---|---|' * len(of)}")
    for look in (*LOOKS, "end"):
        for name, detector in DETECTORS.items():
            print(f"| {look} | {name} | {' | '.join(said_at(detector, m, look).row() for m in of.values())} |")  # fmt: skip
        if look == "end":
            continue
        for name, score in SCORES.items():
            rows = [Counts.of(held_out(score, m, look), m).row() for m in of.values()]
            print(f"| {look} | on the plateau, {name} refitted, group held out | {' | '.join(rows)} |")  # fmt: skip


def _by_cut(runs: Sequence[Watched]) -> None:
    print("\n## The library at other cuts of the prediction KL: collapsed called, others called\n")
    looks = (*LOOKS, "end")
    print(f"| nats | {' | '.join(map(str, looks))} | ever before the end |\n|---|{'---|' * len(looks)}---|")  # fmt: skip
    for cut in CUTS:
        found = [*(said_at(blind(cut), runs, look) for look in looks), ever(blind(cut), runs)]
        print(f"| {cut} | {' | '.join(f'{c.hits}, {c.false_alarms}' for c in found)} |")


def _left_later(runs: Sequence[Watched]) -> None:
    print("\n## False alarms of the library, by when they left\n")
    print("| step | false alarms | left within as many steps again | median | last | times the baseline's exit |\n|---|---|---|---|---|---|")  # fmt: skip
    for look in LOOKS:
        exits = [(run.exit.step, run.baseline.step) for run in runs if not run.collapsed and library(run, look)]  # fmt: skip
        soon = sum(step <= 2 * look for step, _ in exits)
        told = f"{statistics.median(s for s, _ in exits):.0f} | {max(s for s, _ in exits):.0f} | {max(s / b for s, b in exits):.0f}" if exits else "- | - | -"  # fmt: skip
        print(f"| {look} | {len(exits)} | {soon} | {told} |")


def _on_the_plateau(runs: Sequence[Watched]) -> None:
    print("\n## Of the runs on the plateau: AUC for never leaving it, with its p by permutation\n")
    print(f"| step | never left | left | {' | '.join(SCORES)} |\n|---|---|---|{'---|' * len(SCORES)}")  # fmt: skip
    for look in LOOKS:
        there = [run for run in runs if run.on_plateau(look)]
        never = sum(run.collapsed for run in there)
        told = [_auc(score, there, look) for score in SCORES.values()]
        print(f"| {look} | {never} | {len(there) - never} | {' | '.join(told)} |")


def _auc(score: Scored, runs: Sequence[Watched], look: int) -> str:
    known = [(score(run, look), run.collapsed) for run in runs]
    known = [(value, truth) for value, truth in known if value is not None]
    if len({truth for _, truth in known}) < 2:
        return "-"
    values, truths = zip(*known, strict=True)
    return f"{auc(values, truths):.2f} (p {permutation_p(values, truths, resamples=2000):.3f})"


def _by_patience(runs: Sequence[Watched]) -> None:
    print(
        "\n## The loss alone, as patient as it likes: at every evaluation before the planned end\n"
    )
    print("| on the plateau at so many times the baseline's exit | collapsed called | others called | median first call |\n|---|---|---|---|")  # fmt: skip
    for times in (1, 2, 3, 5, 10, 15, 20, 30):
        calls = [c for run in runs if run.collapsed and (c := first_call(patient(times), run)) is not None]  # fmt: skip
        print(f"| {times} | {ever(patient(times), runs).row()} | {statistics.median(calls) if calls else '-'} |")  # fmt: skip


def _warning(runs: Sequence[Watched]) -> dict[str, dict[str, object]]:
    print("\n## Steps of warning: first call, against the loss alone at its least patience\n")
    print("| rule | collapsed called | others called | median first call | ahead of a loss with no more false alarms | ahead of a loss without any |\n|---|---|---|---|---|---|")  # fmt: skip
    sure, found = patience(runs, 0), {}
    for name, detector in DETECTORS.items():
        counts = ever(detector, runs)
        calls = [c for run in runs if run.collapsed and (c := first_call(detector, run)) is not None]  # fmt: skip
        equal = patience(runs, counts.false_alarms)
        both = [[] if k is None else ahead(detector, runs, k) for k in (equal, sure)]
        told = [_steps(steps, k) for steps, k in zip(both, (equal, sure), strict=True)]
        median = statistics.median(calls) if calls else "-"
        print(f"| {name} | {counts.row()} | {median} | {' | '.join(told)} |")
        found[name.strip("*")] = {
            **dataclasses.asdict(counts),
            **{key: {"patience": k, "steps": steps} for key, k, steps in zip(("equal", "sure"), (equal, sure), both, strict=True)},
        }  # fmt: skip
    longest = max((run.exit.step / run.baseline.step for run in runs if NEVER not in (run.exit, run.baseline)), default=None)  # fmt: skip
    print(f"\nThe last run to leave did so at {longest:.1f} times the baseline's exit step." if longest else "")  # fmt: skip
    return found


def _steps(steps: Sequence[int], times: int | None) -> str:
    if not steps:
        return "-"
    return f"{statistics.median(steps):.0f} [{min(steps)}, {max(steps)}] (x{times})"


if __name__ == "__main__":
    main()
