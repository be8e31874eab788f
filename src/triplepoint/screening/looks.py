"""When a screen looks: once, or again and again until it is sure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from triplepoint.errors import PlanError, RunFolderError
from triplepoint.recipes import whole_number
from triplepoint.runs import read_json, write_json
from triplepoint.screening.verdicts import Word

STEPS = 500
"""Length of a calibration that is looked at once."""
MAX_STEPS = 2000
"""Longest calibration of a screen that goes on until it is sure."""
FIRST = (100, 250, 500, 1000)
"""Steps of the first looks; each that follows is twice as far."""
FILE = "looks.json"
"""Where a screen keeps the looks that it has taken, besides its verdict."""


def look_steps(last: int) -> tuple[int, ...]:
    """Return the steps at which a screen looks until it is sure: 100, 250, 500, 1000, then x 2, and ``last``.

    Example:
        >>> look_steps(2500), look_steps(500), look_steps(60)
        ((100, 250, 500, 1000, 2000, 2500), (100, 250, 500), (60,))
    """
    steps = list(FIRST)
    while steps[-1] < last:
        steps.append(2 * steps[-1])
    return (*(s for s in steps if s < last), last)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Looks:
    """At which steps a screen looks, and how sure it has to be."""

    steps: tuple[int, ...]
    confidence: float | None = None
    """Probability from which it stops; None for one look, whatever it says."""

    @property
    def last(self) -> int:
        """Step of the last look: the calibration's greatest length."""
        return self.steps[-1]

    @classmethod
    def of(
        cls,
        planned: int,
        *,
        steps: int | None = None,
        until_confident: float | None = None,
        max_steps: int | None = None,
    ) -> Looks:
        """Return the looks that are asked for.

        Args:
            planned: The plan's steps.
            steps: Length of a calibration that is looked at once; by default 500.
            until_confident: Probability, above 0.5 and below 1, until which it goes on instead.
            max_steps: How far it goes on at most; by default 2000, or the plan's end if that comes first.

        Raises:
            PlanError: If they contradict each other, or one is out of range.
        """
        if until_confident is None:
            if max_steps is not None:
                raise PlanError(
                    f"--max-steps {max_steps} is for a screen that goes on until it is sure.\n"
                    f"Give --until-confident 0.9 as well, or --steps {max_steps} for one look."
                )
            return cls(steps=(STEPS if steps is None else steps,))
        if steps is not None:
            raise PlanError(
                f"--until-confident looks again and again, but --steps {steps} asks for one look.\n"
                f"Give --max-steps {steps} for the last look."
            )
        if not 0.5 < until_confident < 1:
            raise PlanError(
                f"--until-confident is a probability above 0.5 and below 1, got {until_confident}.\n"
                "Try --until-confident 0.9."
            )
        last = min(MAX_STEPS, planned) if max_steps is None else max_steps
        whole_number("max_steps", last)
        if not 1 <= last <= planned:
            raise PlanError(
                f"--max-steps must lie in the plan of {planned} steps, got {last}.\n"
                f"Give --max-steps {planned} or fewer: at the plan's end the result is measured."
            )
        return cls(steps=look_steps(last), confidence=until_confident)

    @property
    def asked(self) -> dict[str, float]:
        """What of it is part of a screen's identity: not its length, which may grow."""
        return {} if self.confidence is None else {"until_confident": self.confidence}

    def left(self, taken: Sequence[Look]) -> tuple[int, ...]:
        """Return the steps that are still to be looked at; the last look again where it ended the screen.

        Example:
            >>> looks = Looks(steps=(100, 250, 500), confidence=0.9)
            >>> looks.left([Look(steps=100, verdict="undecided", candidates={"dyt": "undecided"})])
            (250, 500)
            >>> looks.left([Look(steps=250, verdict="keep", candidates={"dyt": "keep"})])
            (250, 500)
        """
        if not taken:
            return self.steps
        last = taken[-1]
        ahead = tuple(s for s in self.steps if s > last.steps)
        return ahead if ahead and not last.sure else (last.steps, *ahead)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """What a screen said at one step."""

    steps: int
    verdict: Word
    candidates: Mapping[str, Word]
    """Candidate -> word."""

    @property
    def sure(self) -> bool:
        """Whether no candidate is undecided."""
        return "undecided" not in self.candidates.values()


def taken_in(folder: Path) -> list[Look]:
    """Return the looks that a screen has taken, in order."""
    if not (folder / FILE).exists():
        return []
    try:
        return [Look(**row) for row in read_json(folder / FILE)["looks"]]
    except (KeyError, TypeError) as error:
        raise RunFolderError(
            f"{folder / FILE} is damaged: {type(error).__name__} {error}.\n"
            "Delete it: the looks are taken again, and what was trained is kept."
        ) from error


def keep_looks(folder: Path, taken: Sequence[Look]) -> None:
    """Write the looks that a screen has taken, before it goes on: one that is interrupted knows where it was."""
    write_json(folder / FILE, {"looks": [dataclasses.asdict(look) for look in taken]})
