"""The answer, as values: what ``verdict.json`` holds."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

Word = Literal["keep", "replace", "unsafe", "undecided"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Candidate against baseline at one endpoint; fractions of the baseline's loss, positive = worse."""

    delta_rel: float
    interval: tuple[float, float]
    """95 %, windows inside seeds."""
    baseline_loss: float
    candidate_loss: float
    baseline_step: float
    """Mean over seeds."""
    candidate_step: float
    by_seed: tuple[float, ...]
    """``delta_rel`` of each seed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NextLook:
    """The next step at which looking again can change the answer, and its price."""

    steps: int
    cost_s: float
    """Seconds for all arms and seeds, on the machine that measured."""
    what: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class CandidateVerdict:
    """What was found about one candidate."""

    arm: str
    op: str
    preset: str | None
    verdict: Word
    why: str
    delta_rel: float | None
    """At the criterion's endpoint, at the calibration's last step."""
    interval: tuple[float, float] | None
    endpoints: dict[str, Comparison | None]
    lr: float
    speed_ratio: float | None
    offset: float | None
    break_even_speed_ratio: float | None
    break_even_offset: float | None
    saturation_2: float | None
    stalled: bool
    collapsed: bool
    phase: str
    phase_reason: str
    plateau_exit_step: int | None
    step_time_ratio: float | None
    tokens_per_s_ratio: float | None
    peak_memory_ratio: float | None
    forecast: dict[str, Any] | None
    terms: list[dict[str, Any]]
    """What the forecast was made of: label, value, spread, meaning."""
    miniature: dict[str, Any] | None
    """The whole plan at small sizes, where it was trained: the difference at each, carried on to full size, its record."""
    next: NextLook | None
    would_change: list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer of a screen."""

    verdict: Word
    recommended: str
    """The arm to train: the candidate with the lowest forecast loss, or the baseline."""
    criterion: str
    headline: str
    summary: list[str]
    plan: dict[str, Any]
    baseline: dict[str, Any]
    candidates: list[CandidateVerdict]
    rules: list[dict[str, Any]]
    cost: dict[str, Any]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``verdict.json`` holds: plain values, a number that is not finite as null."""
        return _plain(dataclasses.asdict(self))

    def __str__(self) -> str:
        return "\n".join([self.headline, *self.summary])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def overall(candidates: list[CandidateVerdict], baseline: str) -> tuple[Word, str]:
    """Return the one word for all candidates, and the arm to train.

    ``replace`` if any candidate has it, and then the one with the lowest forecast (or measured) loss; else
    ``undecided`` if any has it; else ``unsafe`` if all have it; else ``keep``.
    """
    words = [c.verdict for c in candidates]
    if "replace" in words:
        winners = [c for c in candidates if c.verdict == "replace"]
        return "replace", min(winners, key=_expected_delta).arm
    if "undecided" in words:
        return "undecided", baseline
    return ("unsafe" if all(w == "unsafe" for w in words) else "keep"), baseline


def _expected_delta(candidate: CandidateVerdict) -> float:
    if candidate.forecast is not None:
        return candidate.forecast["delta_rel"]
    return math.inf if candidate.delta_rel is None else candidate.delta_rel
