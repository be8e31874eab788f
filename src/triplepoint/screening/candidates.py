"""The arms of a screen: which there are, and that they make sense."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from triplepoint.errors import PlanError
from triplepoint.ops import parse_op_name
from triplepoint.screening.plans import Arm

NORMS = ("layernorm", "rmsnorm")
"""Baselines that an op of the same name does not change."""


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The arms of a screen by name, baseline first; checked."""

    baseline: str
    arms: Mapping[str, Arm]

    def __post_init__(self):
        if not self.arms:
            raise PlanError(
                "There is no candidate.\nName at least one op, e.g. --candidates dyt:paper."
            )
        named: dict[object, str] = {}
        for name, arm in self.arms.items():
            if not name.strip():
                raise PlanError("A candidate has no name.\nName each one, e.g. dyt:paper.")
            same = named.setdefault(self._told(arm), name)
            if same != name:
                raise PlanError(
                    f"Named twice: {same} and {name} are the same candidate.\nName each candidate once."
                )
            if arm == Arm():
                raise PlanError(
                    f"The candidate '{name}' is the baseline itself: it changes nothing.\n"
                    "Give it an op, a build or other training, e.g. Arm(weight_decay=1.0)."
                )
            if name == self.baseline:
                raise PlanError(
                    f"'{name}' is the baseline's name.\nGive the candidate another name, or another op."
                )
            if (
                self.baseline in NORMS
                and arm == Arm(op=arm.op)
                and parse_op_name(arm.op)[0] == self.baseline
            ):
                raise PlanError(
                    f"The candidate '{name}' is the baseline itself: the model's norms are {self.baseline} already.\n"
                    "Name another op, e.g. dyt or rmsnorm, or change its training with Arm(weight_decay=...)."
                )

    @staticmethod
    def _told(arm: Arm) -> Arm:
        if arm.op is None:
            return arm
        op, preset = parse_op_name(arm.op)
        return dataclasses.replace(arm, op=f"{op}:{preset.name}")

    def op_of(self, name: str) -> tuple[str, str | None]:
        """Return op and preset of an arm, for the verdict."""
        arm = self.arms.get(name)
        if arm is None or arm.op is None:
            return self.baseline, None
        op, preset = parse_op_name(arm.op)
        return op, preset.name


def as_arms(candidates: str | Sequence[str] | Mapping[str, str | Arm]) -> dict[str, Arm]:
    """Turn op names (a list, or comma-separated), or a mapping name -> op name or arm, into arms.

    Raises:
        PlanError: If an op is named twice.
    """
    if isinstance(candidates, Mapping):
        return {n: a if isinstance(a, Arm) else _known(a) for n, a in candidates.items()}
    if isinstance(candidates, str):
        candidates = candidates.split(",")
    if not all(isinstance(c, str) for c in candidates):
        raise PlanError(
            f"Candidates are op names, or a mapping name -> op name or Arm, got {list(candidates)!r}.\n"
            'Try candidates=["dyt:recommended"].'
        )
    names = [c.strip() for c in candidates if c.strip()]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise PlanError(f"Named twice: {', '.join(twice)}.\nName each candidate once.")
    return {name: _known(name) for name in names}


def _known(op: str) -> Arm:
    parse_op_name(op)  # an unknown name ends here, before anything is trained
    return Arm(op=op)
