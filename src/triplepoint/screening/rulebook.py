"""The fitted rule at every look, and its record on the cells it was tested on: what ships with the library."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from triplepoint.evidence import (
    ENDPOINTS,
    LOOKS,
    BenchmarkCell,
    Endpoint,
    Held,
    Setting,
    Truth,
    held_out,
    is_regularised,
    sequential_threshold,
    truth_from,
)
from triplepoint.runs import read_json, write_json
from triplepoint.screening.latents import Law
from triplepoint.screening.nearness import Neighbourhood
from triplepoint.screening.rule import FittedRule, LatenessRule
from triplepoint.statistics import wilson

SHIPPED = Path(__file__).parent / "rulebook.json"
LEAST_PLANS, LEAST_RIGHT = 5, 0.5
"""Plans that a sign in miniature needs behind it to decide, and the least lower bound of how often it was right."""
WRONG = 0.1
"""Most wrong answers per plan asked that the sequential threshold allows, all looks paid for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellRecord:
    """A cell, how it ended, and what the rule said of it when its scale was held out."""

    name: str
    candidate: str
    op: str
    setting: Setting
    truth: Mapping[Endpoint, Truth]
    p: Mapping[int, Mapping[Endpoint, float]]
    """Look -> P(candidate ends lower)."""
    answered: Mapping[int, Mapping[Endpoint, bool]]

    @property
    def regularised(self) -> bool:
        """Whether the candidate has more dropout or weight decay than the baseline."""
        return is_regularised(self.candidate)

    def right(self, look: int, endpoint: Endpoint) -> bool | None:
        """Return whether an answer was right; None where there was none, or the cell is a tie."""
        if not self.answered[look][endpoint] or not self.truth[endpoint].clear:
            return None
        return (self.p[look][endpoint] > 0.5) == (self.truth[endpoint].winner == "candidate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Track:
    """How often the rule was right."""

    right: int
    answered: int
    cells: int
    """Clear ones, answered or not."""

    @property
    def interval(self) -> tuple[float, float]:
        """95 %, Wilson's."""
        return wilson(self.right, self.answered)

    @property
    def facts(self) -> dict[str, Any]:
        """As a verdict keeps it."""
        return {
            "right": self.right, "answered": self.answered, "clear_cells": self.cells,
            "interval": self.interval if self.answered else None,
        }  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class MiniatureRecord:
    """How often a trusted sign of plans in miniature was right, by what it said."""

    architectures: tuple[str, ...]
    """Families of the plans."""
    said: Mapping[Endpoint, Mapping[str, Track]]
    """Endpoint -> winner that was said (``candidate``, ``baseline``) -> record; its ``cells`` are those it was right for."""

    def track(self, endpoint: Endpoint, winner: str) -> Track:
        """Return the record of one answer."""
        return self.said[endpoint][winner]

    def decides(self, endpoint: Endpoint, winner: str, architecture: str) -> bool:
        """Whether an answer has a record to stand on: enough plans of this family, nearly all right."""
        track = self.track(endpoint, winner)
        known = architecture in self.architectures and track.answered >= LEAST_PLANS
        return known and track.interval[0] >= LEAST_RIGHT

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> MiniatureRecord:
        """Read it back."""
        said = {
            e: {w: Track(**track) for w, track in of.items()} for e, of in values["said"].items()
        }
        return cls(architectures=tuple(values["architectures"]), said=said)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleBook:
    """The rule at every look, and its record."""

    rules: Mapping[int, FittedRule]
    sequential: Mapping[Endpoint, float]
    """Least probability of an answer that may be given at any of the looks."""
    cells: tuple[CellRecord, ...]
    miniature: MiniatureRecord
    """How often the sign of a plan in miniature, where it was trusted, was the real plan's."""

    def look_for(self, steps: int) -> int | None:
        """Return the latest look that a calibration of so many steps has reached."""
        return max((look for look in self.rules if look <= steps), default=None)

    def neighbourhood(self, look: int) -> Neighbourhood:
        """Return the cells' places."""
        return Neighbourhood([c.setting for c in self.cells], [c.op for c in self.cells], look)

    def track(self, look: int, endpoint: Endpoint, *, architecture: str | None = None) -> Track:
        """Return the record at a look, the scale held out; of one architecture where there is any.

        Args:
            look: Of the rule.
            endpoint: That was asked for.
            architecture: Family whose cells count.
        """
        alike = [c for c in self.cells if c.setting.architecture.partition(" ")[0] == architecture]
        cells = [c for c in (alike or self.cells) if c.truth[endpoint].clear]
        told = [r for c in cells if (r := c.right(look, endpoint)) is not None]
        return Track(right=sum(told), answered=len(told), cells=len(cells))

    @classmethod
    def fit(
        cls,
        cells: Sequence[BenchmarkCell],
        *,
        miniature: MiniatureRecord,
        by: str = "scale",
    ) -> RuleBook:
        """Fit the rule at every look, and test it with folds held out.

        Args:
            cells: With and without truth.
            miniature: The record of plans in miniature, which is measured apart.
            by: What is held out.
        """
        known = [cell for cell in cells if cell.truth is not None]
        held = {look: held_out(LatenessRule(), known, look=look, by=by) for look in LOOKS}
        by_cell: dict[BenchmarkCell, dict[int, Held]] = {}
        for look, answers in held.items():
            for one in answers:
                by_cell.setdefault(one.cell, {})[look] = one
        return cls(
            rules={look: LatenessRule().fit(known, look) for look in LOOKS},
            sequential={e: sequential_threshold(held, e, error=WRONG) for e in ENDPOINTS},
            cells=tuple(_record(cell, by_cell[cell]) for cell in known),
            miniature=miniature,
        )

    def write(self, path: Path = SHIPPED) -> None:
        """Write it as JSON."""
        write_json(path, dataclasses.asdict(self))

    @classmethod
    def read(cls, path: Path) -> RuleBook:
        """Read what :meth:`write` wrote."""
        values = read_json(path)
        return cls(
            rules={int(look): _rule(rule) for look, rule in values["rules"].items()},
            sequential=values["sequential"],
            cells=tuple(_cell(cell) for cell in values["cells"]),
            miniature=MiniatureRecord.of(values["miniature"]),
        )


@cache
def shipped() -> RuleBook:
    """Return the rule as fitted on the benchmark that is in the repository."""
    return RuleBook.read(SHIPPED)


def _record(cell: BenchmarkCell, held: Mapping[int, Held]) -> CellRecord:
    return CellRecord(
        name=cell.name, candidate=cell.candidate, op=cell.op, setting=cell.setting, truth=cell.truth,
        p={look: one.prediction.p for look, one in held.items()},
        answered={look: one.prediction.answered for look, one in held.items()},
    )  # fmt: skip


def _rule(values: Mapping[str, Any]) -> FittedRule:
    laws = {
        name: Law(coefficients=tuple(law["coefficients"]), spread=law["spread"])
        for name, law in values["laws"].items()
    }
    return FittedRule(**{**values, "laws": laws})


def _cell(values: Mapping[str, Any]) -> CellRecord:
    return CellRecord(
        name=values["name"], candidate=values["candidate"], op=values["op"], setting=Setting(**values["setting"]),
        truth={e: truth_from(t) for e, t in values["truth"].items()},
        p={int(look): p for look, p in values["p"].items()},
        answered={int(look): told for look, told in values["answered"].items()},
    )  # fmt: skip
