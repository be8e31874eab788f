"""Numbers as a reader wants them: few digits, a unit, a true minus sign, a dash where there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

DASH = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
NBSP = "\N{NO-BREAK SPACE}"


def known(value: object) -> bool:
    """Tell whether ``value`` is a finite number."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _number(value: object, spec: str, unit: str = "") -> str:
    if not known(value):
        return DASH if value is None else "not finite"
    text = format(value, spec).replace("-", MINUS)
    return f"{text}{NBSP}{unit}" if unit else text


def loss(value: float | None) -> str:
    """Format a loss: three decimals.

    Example:
        >>> loss(3.05062)
        '3.051'
    """
    return _number(value, ".3f")


def change(value: float | None) -> str:
    """Format a relative change, given as a fraction: signed percent with one decimal.

    Example:
        >>> change(0.0123).replace(NBSP, " ")
        '+1.2 %'
    """
    return _number(100 * value if known(value) else value, "+.1f", "%")


def change_interval(interval: Sequence[float | None] | None) -> str:
    """Format the 95 % interval of a relative change; empty where there is none.

    Example:
        >>> change_interval([0.01, 0.025]).replace(NBSP, " ")
        '+1.0 to +2.5 %'
    """
    if not interval or not all(known(end) for end in interval):
        return ""
    low, high = (change(end) for end in interval)
    return f"{low.removesuffix(f'{NBSP}%')} to {high}"


def share(value: float | None) -> str:
    """Format a fraction of a whole, 0 to 1: percent without sign."""
    if known(value) and 0 < value < 0.0005:
        return f"below 0.1{NBSP}%"
    return _number(100 * value if known(value) else value, ".1f", "%")


def ratio(value: float | None) -> str:
    """Format a ratio of two like quantities: two decimals."""
    return _number(value, ".2f")


def offset(value: float | None) -> str:
    """Format a difference of two losses: signed, three decimals."""
    return _number(value, "+.3f")


def count(value: float | None) -> str:
    """Format a number of things: groups of three digits.

    Example:
        >>> count(10000000)
        '10,000,000'
    """
    return _number(value, ",.0f")


def duration(seconds: float | None) -> str:
    """Format a time in the largest unit that leaves at least one.

    Example:
        >>> duration(5400).replace(NBSP, " ")
        '1.5 h'
    """
    if not known(seconds):
        return DASH
    for size, unit in ((172800, "days"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            per = 86400 if unit == "days" else size
            return _number(seconds / per, ".3g", unit)
    return _number(1000 * seconds, ".3g", "ms")


def memory(size: float | None) -> str:
    """Format bytes in binary units.

    Example:
        >>> memory(3 * 2**30).replace(NBSP, " ")
        '3.0 GiB'
    """
    if not known(size):
        return DASH
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return _number(size / 2**power, ".1f", unit)
    return _number(size, ".0f", "bytes")


def listed(names: Sequence[str]) -> str:
    """Join names as prose does.

    Example:
        >>> listed(["a", "b", "c"])
        'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def shortened(text: str, length: int) -> str:
    """Return ``text``, its beginning left out where it is longer than ``length``.

    Example:
        >>> shortened("layers.11.norm", 8)
        '…11.norm'
    """
    return text if len(text) <= length else f"\N{HORIZONTAL ELLIPSIS}{text[1 - length :]}"


def plain(value: object) -> str:
    """Format a value of unknown kind, as a manifest holds them.

    Example:
        >>> plain({"lr": 0.001, "seeds": [0, 1], "compile": False})
        'lr 0.001, seeds 0, 1, compile no'
    """
    if value is None or value == "":
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items()) or DASH
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or DASH
    if isinstance(value, int):
        return count(value) if abs(value) >= 10_000 else str(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
