"""The miniatures of the study: which cells are shrunk, what is trained for them, and how each ended."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from studies._maps import kept_as, run_missing
from triplepoint.blueprints import Shape, blueprint_of, shrink
from triplepoint.evidence import ENDPOINTS, BenchmarkCell, Endpoint, Prediction, Truth, truth_of
from triplepoint.maps import MapPlan
from triplepoint.maps.planning import PlannedCell, plan_cells
from triplepoint.runs import read_arrays, read_json
from triplepoint.screening import Plan
from triplepoint.screening.miniature_evidence import has_learned
from triplepoint.screening.shrinking import shrink_plan

STORED = Path(__file__).parent / "records" / "miniatures"
SIZES = ("gpt2-0.1m", "gpt2-0.4m", "gpt2-0.8m")
BYTES = {20_000: 3000, 100_000: 1500, 500_000: 1500, 1_500_000: 1500}
"""Unique tokens -> steps, as the phase map has them."""
CANDIDATES = ("dyt:paper", "dyt:recommended")
KS = (16, 4)
CONTEXT, LR = 128, 1e-3
SHAPE = Shape(vocab=256, context=CONTEXT)


@dataclasses.dataclass(frozen=True)
class Original:
    """What is shrunk: a size on so much text, for so many steps."""

    size: str
    unique_tokens: int
    steps: int

    @property
    def plan(self) -> Plan:
        """As the phase map trains it."""
        return Plan(steps=self.steps, unique_tokens=self.unique_tokens, lr=LR)


ORIGINALS = tuple(
    Original(size, tokens, steps) for tokens, steps in BYTES.items() for size in SIZES
)


@functools.cache
def planned(original: Original, k: int, runs: Path) -> tuple[float, tuple[PlannedCell, ...]]:
    """Return the k that is reached, and the cells of baseline and candidates."""
    model = shrink(blueprint_of(original.size), k, SHAPE)
    small = shrink_plan(original.plan, model, context=CONTEXT)
    grid = {
        "size": original.size, **model.changes, "unique_tokens": small.plan.unique_tokens,
        "batch": small.plan.batch, "context": small.context, "steps": small.plan.steps, "op": ["norm", *CANDIDATES],
    }  # fmt: skip
    cells = plan_cells(MapPlan(name="miniatures", grid=[grid], defaults={"lr": LR}, looks=False), runs)  # fmt: skip
    return model.k, tuple(cells)


def train(originals: Sequence[Original], runs: Path, stored: Path) -> None:
    """Train the miniatures that are not kept, smallest first."""
    cells = [c for k in KS for original in originals for c in planned(original, k, runs)[1]]
    run_missing(cells, stored)


@functools.cache
def miniature_truths(
    original: Original, k: int, stored: Path = STORED
) -> tuple[float, dict[str, dict[Endpoint, Truth] | None]] | None:
    """Return the k that was reached and candidate -> how its miniature ended (None where an arm diverged).

    None where it is not there yet.
    """
    reached, cells = planned(original, k, Path("runs"))
    files = [kept_as(cell, stored) for cell in cells]
    if not all(file.exists() for file in files):
        return None
    losses = [
        read_arrays(file.with_suffix(".npz"))["val_loss"].astype(float)
        if read_json(file)["diverged_at"] is None
        else None
        for file in files
    ]
    baseline, *others = losses
    return reached, {
        name: truth_of([arm], [baseline]) if arm is not None and baseline is not None else None
        for name, arm in zip(CANDIDATES, others, strict=True)
    }


def miniatures_learned(original: Original, candidate: str, stored: Path = STORED) -> bool:
    """Return whether baseline and candidate have left the plateau at every size."""
    for k in KS:
        _, cells = planned(original, k, Path("runs"))
        for cell in (cells[0], cells[1 + CANDIDATES.index(candidate)]):
            file = kept_as(cell, stored)
            losses = read_arrays(file.with_suffix(".npz"))["train_loss"].astype(float)
            if not has_learned(losses[None], read_json(file)["plateau"]):
                return False
    return True


def original_of(setting: Mapping[str, object]) -> Original | None:
    """Return what a benchmark cell's setting is a plan of; None where no miniature was made of it."""
    found = Original(setting["size"], setting["unique_tokens"], setting["steps"])
    as_planned = (
        found in ORIGINALS
        and setting["architecture"] == "gpt2"
        and setting["corpus"] == "stdlib"
        and setting["lr"] == setting["candidate_lr"] == LR
    )
    return found if as_planned else None


def sign_of(
    setting: Mapping[str, object], candidate: str, k: int, endpoint: Endpoint, stored: Path = STORED
) -> Truth | None:
    """Return how the miniature of a benchmark cell ended: the sign of its ``delta_rel`` is the baseline rule's answer.

    Args:
        setting: ``dataclasses.asdict(cell.setting)``.
        candidate: ``cell.candidate``.
        k: 4 or 16.
        endpoint: Which.
        stored: Folder of the kept miniatures.

    Returns:
        None where there is no such miniature, or an arm of it diverged.
    """
    original = original_of(setting)
    found = original and miniature_truths(original, k, stored)
    truth = found and found[1].get(candidate)
    return truth[endpoint] if truth else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiniatureSign:
    """The rule "who wins in miniature wins": of one size, and as sure as it was right on the cells that it was fitted on."""

    k: int
    stored: Path = STORED
    trains = True

    @property
    def name(self) -> str:
        """With its size."""
        return f"sign of a miniature at 1/{self.k}"

    def sign(self, cell: BenchmarkCell, endpoint: Endpoint) -> float:
        """Return the sign of the miniature's difference; 0 where there is none, or neither arm is ahead."""
        truth = sign_of(dataclasses.asdict(cell.setting), cell.candidate, self.k, endpoint, self.stored)  # fmt: skip
        return float(np.sign(truth.delta_rel)) if truth else 0.0

    def fit(self, cells: Sequence[BenchmarkCell], look: int) -> FittedSign:
        """Count how often it was right on clear cells, and how often the candidate won; each as (n + 1) / (N + 2)."""
        right, wins = {}, {}
        for endpoint in ENDPOINTS:
            clear = [
                cell for cell in cells if cell.truth is not None and cell.truth[endpoint].clear
            ]
            signs = [(self.sign(c, endpoint), np.sign(c.truth[endpoint].delta_rel)) for c in clear]
            right[endpoint] = _share([ours == real for ours, real in signs if ours])
            wins[endpoint] = _share([real < 0 for _, real in signs])
        return FittedSign(rule=self, right=right, wins=wins)


def _share(found: Sequence[bool]) -> float:
    return (sum(map(bool, found)) + 1) / (len(found) + 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FittedSign:
    """The rule with its constants."""

    rule: MiniatureSign
    right: Mapping[Endpoint, float]
    wins: Mapping[Endpoint, float]

    def predict(self, seen: BenchmarkCell) -> Prediction:
        """Answer with the miniature's sign; undecided, at the rate of wins, where there is none."""
        signs = {endpoint: self.rule.sign(seen, endpoint) for endpoint in ENDPOINTS}
        sure = {-1.0: self.right, 1.0: {e: 1 - p for e, p in self.right.items()}, 0.0: self.wins}
        return Prediction(
            p={endpoint: sure[sign][endpoint] for endpoint, sign in signs.items()},
            answered={endpoint: bool(sign) for endpoint, sign in signs.items()},
        )
