"""The schema of the benchmark.

A *cell* is one candidate against one baseline in one setting, over all its seeds: seeds are no cells of their own. Cells
of one *group* share a model and its data, so they are left out together when a rule is tested.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from triplepoint.errors import unknown_name

Endpoint = Literal["fixed_step", "best_checkpoint"]
ENDPOINTS: tuple[Endpoint, ...] = ("fixed_step", "best_checkpoint")


def known_endpoint(name: str) -> Endpoint:
    """Return an endpoint's name.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in ENDPOINTS:
        raise unknown_name("endpoint", str(name), ENDPOINTS)
    return name


LOOKS = (100, 250, 500, 1000)
"""Steps at which a screen may look."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """One run up to some step. Losses in nats per token; the clock ``s1`` is the cumulative learning rate."""

    seed: int
    steps: Int[np.ndarray, " evaluation"]
    s1: Float[np.ndarray, " evaluation"]
    train: Float[np.ndarray, " evaluation"]
    """On the fixed train windows, raw weights, eval mode."""
    val: Float[np.ndarray, " evaluation"]
    series: Mapping[str, tuple[Int[np.ndarray, " look"], Float[np.ndarray, " look"]]]
    """Every other metric -> steps and values; metrics of sites are means over them."""
    outcome: str
    """``finished`` or ``diverged``; of a run that is cut before it diverged, ``finished``."""
    diverged_at: int | None

    def until(self, step: int) -> Trajectory:
        """Return what was known at ``step``."""
        kept = self.steps <= step
        gone = self.diverged_at is not None and self.diverged_at <= step
        return dataclasses.replace(
            self, steps=self.steps[kept], s1=self.s1[kept], train=self.train[kept], val=self.val[kept],
            series={k: (s[s <= step], v[s <= step]) for k, (s, v) in self.series.items()},
            outcome="diverged" if gone else "finished", diverged_at=self.diverged_at if gone else None,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """How a cell ended at one endpoint; differences are fractions of the baseline's loss, positive = candidate worse."""

    delta_rel: float
    interval: tuple[float, float]
    """95 %, seeds and windows resampled."""
    by_seed: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    """95 % of each seed, windows resampled."""
    margin: float
    """Within it the arms are equal: the larger of 0.5 % and twice the standard error over seeds."""

    @property
    def clear(self) -> bool:
        """Whether every seed's interval lies on one side of 0 and the difference is beyond the margin."""
        signs = {(low > 0) - (high < 0) for low, high in self.intervals}
        return len(signs) == 1 and 0 not in signs and abs(self.delta_rel) > self.margin

    @property
    def winner(self) -> Literal["candidate", "baseline", "tie"]:
        """Who won; a tie where it is not clear."""
        if not self.clear:
            return "tie"
        return "candidate" if self.delta_rel < 0 else "baseline"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """What is planned, in the words of a sweep, and what follows from it."""

    architecture: str
    """Family, and what differs from it, e.g. ``llama ffn=gelu``."""
    size: str
    corpus: str
    unique_tokens: int
    params: Mapping[str, int]
    """By convention."""
    steps: int
    tokens_per_step: int
    lr: float
    """Of the baseline; the candidate's is in ``candidate_lr``."""
    candidate_lr: float
    rate: Literal["plan", "own best"]
    """Whether both arms have the plan's rate, or each its own best of those tried."""
    warmup: int
    schedule: str
    plateau: float
    """Validation loss of the training text's unigram frequencies."""

    @property
    def epochs(self) -> float:
        """Tokens processed per unique token at the planned end."""
        return self.steps * self.tokens_per_step / self.unique_tokens

    @property
    def tokens_per_parameter(self) -> float:
        """Unique tokens over all parameters but learned positions, as arXiv 2604.23434 counts."""
        return self.unique_tokens / self.params["params_no_positions"]

    @property
    def group(self) -> str:
        """Model, data size and corpus."""
        return f"{self.architecture} {self.size} {self.unique_tokens} {self.corpus}"

    @property
    def scale(self) -> str:
        """The size without its family: what leaving a scale out leaves out."""
        return self.size.partition("-")[2]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BenchmarkCell:
    """One comparison."""

    name: str
    candidate: str
    """Op with preset, or what regularises, e.g. ``layernorm dropout=0.3``."""
    op: str
    setting: Setting
    baseline_runs: tuple[Trajectory, ...]
    """By seed, to the end of the plan."""
    candidate_runs: tuple[Trajectory, ...]
    truth: Mapping[Endpoint, Truth] | None
    """None where an arm diverged: there is nothing to compare, and the answer is ``unsafe``."""

    @property
    def regularised(self) -> bool:
        """Whether the candidate has more dropout or weight decay than the baseline."""
        return is_regularised(self.candidate)

    def seen(self, step: int) -> BenchmarkCell:
        """Return what a screen may see at ``step``: both arms so far, the plan, and no truth."""
        return dataclasses.replace(
            self,
            baseline_runs=tuple(run.until(step) for run in self.baseline_runs),
            candidate_runs=tuple(run.until(step) for run in self.candidate_runs),
            truth=None,
        )


def is_regularised(candidate: str) -> bool:
    """Return whether a candidate's name says that it has more dropout or weight decay than the baseline."""
    return "dropout=" in candidate or "weight_decay=" in candidate
