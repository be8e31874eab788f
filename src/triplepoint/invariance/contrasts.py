"""Two calls of a model, and the part of every tensor in them that must be the same."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from triplepoint.errors import ModelError, TriplepointError
from triplepoint.objectives import logits_of


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One call of a model: on what, in which mode, from which random state."""

    inputs: Any
    batch: int
    seq: int | None
    training: bool = False
    seed: int = 0


Keep = Callable[[Tensor, Case], Tensor | None]
"""The part of a tensor that a law speaks about; None where it can't be told."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Contrast:
    """Two cases whose kept parts must agree."""

    first: Case
    second: Case
    keep: Keep
    words: str
    """What is done in the second case."""


def prefix_of(length: int) -> Keep:
    """Keep the first ``length`` positions, along every axis that has as many as the case's inputs.

    Batch and positions folded into the first axis are told by its size.

    Example:
        >>> case = Case(inputs=None, batch=2, seq=5)
        >>> [list(prefix_of(3)(torch.zeros(s), case).shape) for s in [(2, 5, 7), (2, 4, 5, 5), (10, 7)]]
        [[2, 3, 7], [2, 4, 3, 3], [2, 3, 7]]
    """

    def keep(x: Tensor, case: Case) -> Tensor | None:
        axes = [axis for axis, size in enumerate(x.shape) if size == case.seq]
        if len(axes) > 1 and case.batch == case.seq:
            axes.remove(0)
        if not axes and x.ndim and x.shape[0] == case.batch * case.seq:
            x, axes = x.unflatten(0, (case.batch, case.seq)), [1]
        for axis in axes:
            x = x.narrow(axis, 0, length)
        return x if axes else None

    return keep


def first_row(x: Tensor, case: Case) -> Tensor | None:
    """Keep what belongs to the first row of the batch, also where other axes are folded into the first."""
    if x.ndim and x.shape[0] % case.batch == 0:
        return x[: x.shape[0] // case.batch]
    if x.ndim > 1 and x.shape[1] == case.batch:
        return x[:, :1]
    return None


def everything(x: Tensor, case: Case) -> Tensor:
    """Keep all."""
    return x


def change_between(a: Tensor, b: Tensor) -> float:
    """Return the largest absolute difference; equal infinities differ by 0.

    Raises:
        ModelError: If either has NaNs.

    Example:
        >>> change_between(torch.tensor([1.0, torch.inf]), torch.tensor([1.5, torch.inf]))
        0.5
    """
    if a.is_floating_point() and (a.isnan().any() or b.isnan().any()):
        raise ModelError(
            "The model's output has NaNs, which cannot be compared.\n"
            "Check the weights, or pass inputs= on which it is finite."
        )
    a, b = a.double(), b.double()
    return torch.where(a == b, 0.0, (a - b).abs()).max().item() if a.numel() else 0.0


class Subject:
    """A model that is called case by case and left as it was."""

    def __init__(self, model: nn.Module):
        self.model = model
        self._outputs: dict[Case, Tensor] = {}

    def output(self, case: Case) -> Tensor:
        """Return the model's output (its logits, where it has some), computed once per case."""
        if case not in self._outputs:
            self._outputs[case] = self.run(case)
        return self._outputs[case]

    @property
    def output_dtype(self) -> torch.dtype:
        """Of the outputs so far."""
        return next(iter(self._outputs.values())).dtype

    def run(self, case: Case) -> Tensor:
        """Call the model.

        In training mode its dropout is switched off: it is meant to make a difference.

        Raises:
            ModelError: If the model can't be called, or returns no tensor.
        """
        model = self.model
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch.random.fork_rng())
            stack.enter_context(_in_mode(model, training=case.training))
            stack.enter_context(_buffers_kept(model))
            torch.manual_seed(case.seed)
            try:
                return _tensor_of(_call(model, case.inputs), model)
            except TriplepointError:
                raise
            except Exception as error:
                mode = "training" if case.training else "eval"
                raise ModelError(
                    f"{type(model).__name__} cannot be called on {_shapes(case.inputs)} in {mode} mode: {error}\n"
                    "Pass inputs= as the model takes them: a tensor, a tuple of arguments or a mapping of keywords."
                ) from error

    def change(self, contrast: Contrast) -> float:
        """Return the largest absolute change of the output's kept part."""
        a, b = (contrast.keep(self.output(c), c) for c in (contrast.first, contrast.second))
        return change_between(a, b)


def _call(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def _tensor_of(output: Any, model: nn.Module) -> Tensor:
    logits = logits_of(output)
    if logits is None:
        parts = output.values() if isinstance(output, Mapping) else output
        parts = parts if isinstance(parts, tuple | list) or isinstance(output, Mapping) else ()
        floats = (p for p in parts if isinstance(p, Tensor) and p.is_floating_point() and p.ndim)
        logits = next(floats, None)
    if logits is None:
        raise ModelError(
            f"The output of {type(model).__name__}, a {type(output).__name__}, has no tensor to compare.\n"
            "Let it return its logits: as a tensor, first in a tuple, or under the name logits."
        )
    return logits


def _shapes(inputs: Any) -> str:
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs
    parts = [inputs] if isinstance(inputs, Tensor) else parts
    return ", ".join(str(list(p.shape)) for p in parts if isinstance(p, Tensor))


@contextlib.contextmanager
def _in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    before = [(module, module.training) for module in model.modules()]
    with _without_dropout(model) if training else contextlib.nullcontext():
        try:
            model.train(training)
            yield
        finally:
            for module, was in before:
                module.training = was


@contextlib.contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    """Set every dropout rate to 0: of dropout modules, and attributes of modules and configurations by name."""
    owners = {id(m): m for m in model.modules()}
    owners |= {id(c): c for m in model.modules() if hasattr(c := getattr(m, "config", None), "__dict__")}  # fmt: skip
    changed = [
        (owner, name, value)
        for owner in owners.values()
        for name, value in vars(owner).items()
        if isinstance(value, float)
        and ("drop" in name.lower() or (name == "p" and isinstance(owner, nn.modules.dropout._DropoutNd)))
    ]  # fmt: skip
    try:
        for owner, name, _ in changed:
            # around a frozen dataclass's and a Module's own setters
            object.__setattr__(owner, name, 0.0)
        yield
    finally:
        for owner, name, value in changed:
            object.__setattr__(owner, name, value)


@contextlib.contextmanager
def _buffers_kept(model: nn.Module) -> Iterator[None]:
    """Put buffers back that a call changes, such as BatchNorm's running statistics."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, was in before:
            buffer.copy_(was)
