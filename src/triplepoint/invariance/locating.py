"""Which module breaks a law: the first whose inputs keep it and whose output does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from triplepoint.capture import CallCapture
from triplepoint.invariance.contrasts import Contrast, Subject, change_between

ITSELF = "(the model itself)"
"""The path of the model as a whole, which has none."""


def first_violation(subject: Subject, contrast: Contrast, *, share: float) -> str | None:
    """Return the path of the module that breaks the law, by calling the model twice under hooks.

    Modules are looked at as their calls end, those inside before those around them. A module whose inputs have
    changed already is a victim. Where every changed module is one (say, a tensor reached it past its inputs),
    it is the first that has changed.

    Args:
        subject: The model.
        contrast: A contrast whose outputs differ.
        share: Of a tensor's standard deviation: differences up to it are rounding.

    Returns:
        A dotted path, :data:`ITSELF` where the law is broken between the modules, or None where the two calls
        differ in no module's output that can be compared.
    """
    calls: list[tuple[str, list[Tensor | None], list[Tensor | None]]] = []
    modules = dict(subject.model.named_modules())

    def kept(value: Any, case: Any) -> list[Tensor | None]:
        return [contrast.keep(x, case) for x in _tensors(value)]

    def record(site: str, inputs: tuple, output: Any) -> None:
        # cloned: a later module may work in place
        calls.append((site, *([None if x is None else x.clone() for x in kept(part, contrast.first)]
                              for part in (inputs, output))))  # fmt: skip

    with CallCapture(modules, record):
        subject.run(contrast.first)
    earlier, victims, guilty = iter(calls), [], []

    def compare(site: str, inputs: tuple, output: Any) -> None:
        before = next(earlier, None)
        if guilty or before is None or before[0] != site:
            return
        if _differ(before[2], kept(output, contrast.second), share):
            innocent = _differ(before[1], kept(inputs, contrast.second), share)
            (victims if innocent else guilty).append(site or ITSELF)

    with CallCapture(modules, compare):
        subject.run(contrast.second)
    return next(iter(guilty + victims), None)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def _differ(first: list[Tensor | None], second: list[Tensor | None], share: float) -> bool:
    pairs = zip(first, second, strict=False)
    return any(
        a is not None
        and b is not None
        and a.shape == b.shape
        and change_between(a, b) > share * _deviation(a)
        for a, b in pairs
    )


def _deviation(x: Tensor) -> float:
    return x.double().std(correction=0).item() if x.numel() else 0.0
