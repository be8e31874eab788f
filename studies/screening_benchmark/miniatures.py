"""Does a plan in miniature tell who wins? ``python -m studies.screening_benchmark.miniatures [--from-records | --quick]``.

Real cells are those of the phase map; each is trained whole at about 1/4 and 1/16 of its size, one seed, and the signs compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from studies._cells import finish
from studies._maps import kept_as, run_missing
from studies.screening_benchmark.building import stored_runs
from studies.screening_benchmark.miniature_cells import (
    BYTES,
    CANDIDATES,
    CONTEXT,
    KS,
    LR,
    ORIGINALS,
    STORED,
    Original,
    miniature_truths,
    miniatures_learned,
    original_of,
    planned,
    train,
)
from triplepoint.evidence import ENDPOINTS, Endpoint, Truth, truth_from
from triplepoint.records import Record, read_parquet
from triplepoint.runs import read_arrays, read_json
from triplepoint.screening.learning import StoredRun, cells_of
from triplepoint.screening.miniature_evidence import Extrapolated, extrapolate, onset_epoch
from triplepoint.screening.rulebook import MiniatureRecord, Track
from triplepoint.statistics import wilson


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """One candidate of one original at one endpoint, and its miniatures by asked and by reached k."""

    original: Original
    candidate: str
    endpoint: Endpoint
    real: Truth
    asked: Mapping[int, Truth]
    reached: Mapping[float, Truth]
    learned: bool
    """Whether every arm in miniature has left the plateau."""

    @property
    def line(self) -> Extrapolated:
        """Carried on to full size."""
        return extrapolate(self.reached, learned=self.learned)

    def agrees(self, k: int) -> bool:
        """Whether the miniature's sign is the real one."""
        return np.sign(self.asked[k].delta_rel) == np.sign(self.real.delta_rel)


def real_truths(
    runs: Sequence[StoredRun],
) -> dict[tuple[Original, str], Mapping[Endpoint, Truth] | None]:
    """Return (original, candidate) -> how the phase map's cell ended, over all its seeds."""
    found = {}
    for cell in cells_of(runs):
        setting = json.loads(cell["setting"])
        original = original_of(setting)
        if original is not None and cell["candidate"] in CANDIDATES:
            truth = json.loads(cell["truth"]) if cell["truth"] else None
            found[original, cell["candidate"]] = truth and {k: truth_from(v) for k, v in truth.items()}  # fmt: skip
    return found


def step_times(runs: Sequence[StoredRun], stored: Path = STORED) -> dict[str, float]:
    """Return k -> median over originals of the real baseline's time per step over its miniature's, both as recorded."""
    real = {
        (run.asked["size"], run.facts["data"]["train_tokens"]): _step_time(run.records)
        for run in runs
        if run.is_baseline and run.seed == 0 and run.lr == LR
    }
    kept = {
        k: [
            (
                real.get((o.size, o.unique_tokens)),
                kept_as(planned(o, k, Path("runs"))[1][0], stored),
            )
            for o in ORIGINALS
        ]
        for k in KS
    }
    ratios = {
        k: [time / _step_time(read_parquet(file.with_suffix(".parquet"))) for time, file in pairs if time and file.exists()]
        for k, pairs in kept.items()
    }  # fmt: skip
    return {f"1/{k}": statistics.median(found) for k, found in ratios.items() if found}


def _step_time(records: Sequence[Record]) -> float:
    return statistics.median(r.value for r in records if r.metric == "step_wall_time")


def onsets(runs: Sequence[StoredRun], stored: Path = STORED) -> dict[str, dict[str, float | None]]:
    """Return original -> the epoch from which the baseline over-fits: the real one's, and each miniature's."""
    found = {}
    for run in runs:
        original = run.is_baseline and run.seed == 0 and original_of(_setting(run))
        if original:
            each: dict[str, float | None] = {"1": _onset(run.arrays, original, 8 * CONTEXT)}
            for k in KS:
                file = kept_as(planned(original, k, Path("runs"))[1][0], stored)
                if file.exists():
                    facts = read_json(file)
                    small = dataclasses.replace(original, unique_tokens=facts["data"]["train_tokens"])  # fmt: skip
                    each[f"1/{k}"] = _onset(read_arrays(file.with_suffix(".npz")), small, facts["tokens_per_step"])  # fmt: skip
            found[f"{original.size}, {original.unique_tokens} bytes"] = each
    return found


def _setting(run: StoredRun) -> dict[str, object]:
    """Return what :func:`original_of` asks."""
    return {
        "size": run.asked["size"], "unique_tokens": run.facts["data"]["train_tokens"], "steps": run.recipe["steps"],
        "architecture": "gpt2" if not run.asked.get("changes") else "other", "lr": run.lr, "candidate_lr": run.lr,
        "corpus": "stdlib" if "standard library" in run.facts["data"]["source"] else "other",
    }  # fmt: skip


def _onset(arrays: Mapping[str, np.ndarray], trained: Original, tokens_per_step: int) -> float | None:  # fmt: skip
    epochs = arrays["eval_steps"] * tokens_per_step / trained.unique_tokens
    return onset_epoch(arrays["val_loss"].astype(float).mean(axis=1), epochs)


def compared(runs: Sequence[StoredRun], stored: Path = STORED) -> list[Compared]:
    """Return the clear cells whose miniatures are there at every size."""
    found = []
    for (original, candidate), truth in real_truths(runs).items():
        small = [miniature_truths(original, k, stored) for k in KS]
        if truth is None or None in small or any(s[1][candidate] is None for s in small):
            continue
        for endpoint in ENDPOINTS:
            asked = {k: s[1][candidate][endpoint] for k, s in zip(KS, small, strict=True)}
            reached = dict(zip((s[0] for s in small), asked.values(), strict=True))
            one = Compared(original=original, candidate=candidate, endpoint=endpoint, real=truth[endpoint], asked=asked, reached=reached, learned=miniatures_learned(original, candidate, stored))  # fmt: skip
            found += [one] if one.real.clear else []
    return found


def answer(cells: Sequence[Compared]) -> dict[str, object]:
    """Print who agrees with whom; return it as figures."""
    print("| size | bytes | candidate | endpoint | real | 1/4 | 1/16 | line to 1 | trusted |")
    print("|---|---|---|---|---|---|---|---|---|")
    for one in sorted(cells, key=lambda c: (c.endpoint, c.original.unique_tokens, c.original.size)):
        line = one.line
        print(
            f"| {one.original.size} | {one.original.unique_tokens} | {one.candidate} | {one.endpoint} "
            f"| {_told(one.real)} | {_told(one.asked[4])} | {_told(one.asked[16])} | {line.delta_rel:+.1%} | {line.winner or '-'} |"
        )
    figures = {endpoint: _at([c for c in cells if c.endpoint == endpoint]) for endpoint in ENDPOINTS}  # fmt: skip
    print("\n| endpoint | what | agree | of | 95 % |\n|---|---|---|---|---|")
    for endpoint, found in figures.items():
        for what, (right, n, *ends) in found.items():
            share = f"[{ends[0]:.2f}, {ends[1]:.2f}]" if n else "-"
            print(f"| {endpoint} | {what} | {right} | {n} | {share} |")
    return {"clear": len(cells), **figures}


def record(cells: Sequence[Compared]) -> MiniatureRecord:
    """Return how often a sign that was trusted was the real one, by what it said: what ships with the rule."""
    found: dict[Endpoint, dict[str, Track]] = {}
    for endpoint in ENDPOINTS:
        clear = [c for c in cells if c.endpoint == endpoint]
        for winner in ("candidate", "baseline"):
            said = [c.real.winner == winner for c in clear if c.line.winner == winner]
            won = sum(c.real.winner == winner for c in clear)
            found.setdefault(endpoint, {})[winner] = Track(right=sum(said), answered=len(said), cells=won)  # fmt: skip
    return MiniatureRecord(architectures=("gpt2",), said=found)


def _at(cells: Sequence[Compared]) -> dict[str, list[float]]:
    """Return what -> [right, of, low, high] at one endpoint."""
    found = {f"1/{k}": _share(c.agrees(k) for c in cells) for k in KS}
    found |= {
        f"1/{k}, {tokens} bytes": _share(c.agrees(k) for c in cells if c.original.unique_tokens == tokens)
        for k in KS for tokens in BYTES
    }  # fmt: skip
    found["candidate wins, 1/4"] = _share(c.agrees(4) for c in cells if c.real.winner == "candidate")  # fmt: skip
    found["baseline wins, 1/4"] = _share(c.agrees(4) for c in cells if c.real.winner == "baseline")
    lines = [(c.line, c) for c in cells]
    found["sign trusted"] = _share(line.trusted for line, _ in lines)
    found["trusted sign right"] = _share(line.winner == c.real.winner for line, c in lines if line.trusted)  # fmt: skip
    return found


def _share(right: Iterable[bool]) -> list[float]:
    right = [bool(r) for r in right]
    return [sum(right), len(right), *(wilson(sum(right), len(right)) if right else ())]


def _epoch(value: float | None) -> str:
    return "does not" if value is None else f"{value:.3g}"


def _told(truth: Truth) -> str:
    return f"{truth.delta_rel:+.1%}"


def main() -> None:
    """Serve the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.screening_benchmark.miniatures")
    parser.add_argument("--from-records", action="store_true", help="rebuild the table only")
    parser.add_argument("--quick", action="store_true", help="a smoke test of under a minute")  # fmt: skip
    parser.add_argument("--runs", type=Path, default=Path("runs") / "miniatures")
    given = parser.parse_args()
    if given.quick:
        with tempfile.TemporaryDirectory() as folder:
            runs = Path(folder)
            few = Original("gpt2-0.1m", 20_000, 20)
            run_missing(planned(few, 16, runs)[1], runs / "stored")
            _, found = miniature_truths(few, 16, runs / "stored")
            told = {name: truth["fixed_step"].delta_rel for name, truth in found.items()}
            finish("screening_benchmark.miniatures", {"quick": told})
        return
    if not given.from_records:
        train(ORIGINALS, given.runs, STORED)
    runs = stored_runs()
    times = step_times(runs)
    told = ", ".join(f"{k} in {1 / ratio:.2f} of the time" for k, ratio in times.items())
    print(f"A step of the baseline, evaluations aside: {told or 'not measured'}.\n")
    over = onsets(runs)
    print("| baseline | over-fits from epoch: real | 1/4 | 1/16 |\n|---|---|---|---|")
    for name, each in over.items():
        print(f"| {name} | {' | '.join(_epoch(each.get(k)) for k in ('1', '1/4', '1/16'))} |")
    print()
    finish(
        "screening_benchmark.miniatures",
        {"onset_epoch": over, "step_time_ratio": times, **answer(compared(runs))},
    )


if __name__ == "__main__":
    main()
