"""A printed number beside ours: do they agree to the digits that were printed?"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Literal

from studies.published_numbers import rules, settings, values
from studies.published_numbers.values import Values
from triplepoint.published import PrintedNumber, SeedValues

QUANTITIES: dict[str, Callable[..., float]] = {
    function.__name__: function
    for module in (values, rules, settings)
    for function in vars(module).values()
    if getattr(function, "__module__", None) == module.__name__
    and not function.__name__.startswith("_")
}
"""Name in the table of printed numbers -> what computes it."""

SLACK = 1e-9
"""Share of a number by which binary arithmetic may miss a decimal half."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """A printed number and what follows from the values."""

    row: PrintedNumber
    ours: float | None
    """None where the values were not shipped."""
    reach: float
    """How far the rounding of the shipped values can move ours."""
    status: Literal["agrees", "agrees within the rounding of its values", "differs", "not printed", "not recomputable"]  # fmt: skip

    @property
    def by(self) -> float | None:
        """Ours minus the printed number."""
        if self.ours is None or self.row.text is None:
            return None
        return self.ours - float(self.row.text)


def half_unit(text: str) -> float:
    """Return half a unit of the last digit printed.

    Example:
        >>> half_unit("-27.3"), half_unit("2.82e-3"), half_unit("16")
        (0.05, 5e-06, 0.5)
    """
    digits, power = re.fullmatch(r"[-+]?\d*\.?(\d*)(?:e([-+]?\d+))?", text).groups()
    return float(f"5e{int(power or 0) - len(digits) - 1}")


def compare(row: PrintedNumber, shipped: Mapping[str, SeedValues]) -> Compared:
    """Recompute one printed number."""
    if not row.quantity:
        return Compared(row=row, ours=None, reach=0.0, status="not recomputable")
    plain = {name: v.seeds for name, v in shipped.items()}
    ours = QUANTITIES[row.quantity](plain, *row.of)
    if row.text is None:
        return Compared(row=row, ours=ours, reach=0.0, status="not printed")
    reach = reach_of(row, plain, shipped)
    return Compared(row=row, ours=ours, reach=reach, status=_status(row.text, ours, reach))


def _status(text: str, ours: float, reach: float) -> str:
    off = abs(ours - float(text))
    if math.isinf(off):
        return "differs"
    printed = half_unit(text) + SLACK * abs(ours)
    if off <= printed:
        return "agrees"
    return "agrees within the rounding of its values" if off <= printed + reach else "differs"


class _Reading(dict[str, Mapping[str, float]]):
    """Values that remember which of them were asked for."""

    def __init__(self, values: Values):
        super().__init__(values)
        self.read: list[str] = []

    def __getitem__(self, name: str) -> Mapping[str, float]:
        self.read.append(name)
        return super().__getitem__(name)


def reach_of(row: PrintedNumber, plain: Values, shipped: Mapping[str, SeedValues]) -> float:
    """Return the most by which the rounding of the shipped values can move a quantity, to first order.

    Each value that the quantity reads is moved in turn by half a unit of its last shipped digit, up and down;
    the larger changes are added up.
    """
    quantity = QUANTITIES[row.quantity]
    reading = _Reading(plain)
    middle, total = quantity(reading, *row.of), 0.0
    for name in dict.fromkeys(reading.read):
        decimals = shipped[name].decimals
        if decimals is None:
            continue
        for seed, value in plain[name].items():
            moved = (value + sign * 0.5 * 10**-decimals for sign in (1, -1))
            changes = [quantity(_with(plain, name, seed, x), *row.of) - middle for x in moved]
            total += max(map(abs, changes))
    return total


def _with(plain: Values, name: str, seed: str, value: float) -> Values:
    return {**plain, name: {**plain[name], seed: value}}
