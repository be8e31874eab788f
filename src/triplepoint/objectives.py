"""What is minimised: model and batch -> loss, for training, and per window, for comparing arms.

A batch may be a tensor of token windows ``[batch, seq + 1]`` (next-token prediction), a mapping (passed as
keywords, as Hugging Face models take it) or a tuple ``(inputs, targets)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from triplepoint.errors import DataError, ModelError

Batch = Any
LossFn = Callable[[Any, Batch], Tensor]


class Objective:
    """The loss of a model on a batch.

    The model's output is used as it comes: an output that is, or has, a scalar ``loss`` is that loss; logits
    ``[..., classes]`` against integer targets give the mean cross-entropy in nats.

    Args:
        loss_fn: ``(output, batch) -> scalar``, where the above does not fit.
        unit: Of the loss, for records.
    """

    def __init__(self, loss_fn: LossFn | None = None, *, unit: str = "nats/token"):
        self._loss_fn, self.unit = loss_fn, unit

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Return the mean loss of ``batch``, with its graph."""
        output = forward(model, batch)
        if self._loss_fn is not None:
            loss = self._loss_fn(output, batch)
            if not (isinstance(loss, Tensor) and loss.ndim == 0):
                told = (
                    f"shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
                )
                raise ModelError(
                    f"loss_fn must return one number as a 0-dimensional tensor, got {told}.\n"
                    "Take the mean over the batch: return losses.mean()."
                )
            return loss
        own = own_loss(output)
        return own if own is not None else cross_entropy(output, batch).mean()

    def per_window(
        self, model: nn.Module, batch: Batch, see_logits: Callable[[Tensor], None] | None = None
    ) -> Float[Tensor, " window"]:
        """Return the loss of each window (first axis) of ``batch``.

        Where the model gives only a scalar, each window is passed by itself.

        Args:
            model: The model.
            batch: Windows, as for :meth:`loss`.
            see_logits: Called with the logits, where the output is or has some.
        """
        if self._loss_fn is None or see_logits is not None:
            output = forward(model, batch)
            logits = logits_of(output)
            if see_logits is not None and logits is not None:
                see_logits(logits)
            if self._loss_fn is None and own_loss(output) is None:
                return cross_entropy(output, batch)
        return torch.stack([self.loss(model, window).detach() for window in windows_of(batch)])


def forward(model: nn.Module, batch: Batch) -> Any:
    """Call the model on the inputs of a batch."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, tuple | list):
        return model(batch[0])
    return model(batch[:, :-1]) if _is_tokens(batch) else model(batch)


def _is_tokens(batch: Batch) -> bool:
    return isinstance(batch, Tensor) and batch.ndim == 2 and not batch.is_floating_point()


def own_loss(output: Any) -> Tensor | None:
    """Return the scalar loss that a model's output is or has, else None."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None and isinstance(output, Tensor) and output.ndim == 0:
        loss = output
    return loss


def logits_of(output: Any) -> Tensor | None:
    """Return the logits that a model's output is or has, else None."""
    if isinstance(output, Mapping):
        return output.get("logits")
    if isinstance(output, Tensor):
        return output if output.ndim > 1 else None
    return getattr(output, "logits", None)


def cross_entropy(output: Any, batch: Batch) -> Float[Tensor, " window"]:
    """Return each window's mean cross-entropy, nats, computed in float32."""
    logits = logits_of(output)
    targets = batch[:, 1:] if _is_tokens(batch) else None
    if targets is None and isinstance(batch, tuple | list) and len(batch) > 1:
        targets = batch[1]
    if logits is None or targets is None or targets.is_floating_point():
        raise ModelError(
            f"The loss of {type(output).__name__} on a batch of type {type(batch).__name__} is not defined.\n"
            "Let the model return its loss, or pass loss_fn=(output, batch) -> scalar."
        )
    losses = F.cross_entropy(logits.float().flatten(0, -2), targets.reshape(-1), reduction="none")
    return losses.view(targets.shape[0], -1).mean(dim=1)


def windows_of(batch: Batch) -> Iterator[Batch]:
    """Yield the windows of a batch, each as a batch of one."""
    for index in range(length_of(batch)):
        yield slice_of(batch, index, index + 1)


def length_of(batch: Batch) -> int:
    """Return how many windows a batch has."""
    return len(first_tensor(batch))


def first_tensor(batch: Batch) -> Tensor:
    """Return the first tensor of a batch.

    Raises:
        DataError: If it holds none, or an empty one: it is no batch.
    """
    parts = (
        batch.values()
        if isinstance(batch, Mapping)
        else batch
        if isinstance(batch, tuple | list)
        else [batch]
    )
    found = next((part for part in parts if isinstance(part, Tensor) and part.ndim > 0), None)
    if found is None or not len(found):
        told = (
            "an empty tensor" if found is not None else f"a {type(batch).__name__} without tensors"
        )
        raise DataError(
            f"A batch is a tensor, a mapping or a tuple of tensors with at least one window, got {told}.\n"
            "Yield e.g. token windows [batch, seq + 1], or (inputs, targets)."
        )
    return found


def slice_of(batch: Batch, start: int, stop: int, stride: int = 1) -> Batch:
    """Return the windows ``start:stop:stride`` of a batch, in its own form."""
    part = slice(start, stop, stride)
    if isinstance(batch, Mapping):
        return {k: v[part] if isinstance(v, Tensor) else v for k, v in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(v[part] if isinstance(v, Tensor) else v for v in batch)
    return batch[part]


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Move the tensors of a batch to ``device``."""
    if isinstance(batch, Mapping):
        return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(v.to(device) if isinstance(v, Tensor) else v for v in batch)
    return batch.to(device)


def concatenate(batches: list[Batch]) -> Batch:
    """Join batches of the same form along their first axis."""
    shapes = {tuple(first_tensor(b).shape[1:]) for b in batches}
    if len(shapes) > 1:
        raise DataError(
            f"Fixed windows must have one shape, got windows of {', '.join(map(str, sorted(shapes)))}.\n"
            "Pad them, or give windows of one length."
        )
    first = batches[0]
    if isinstance(first, Mapping):
        return {
            k: torch.cat([b[k] for b in batches]) if isinstance(v, Tensor) else v
            for k, v in first.items()
        }
    if isinstance(first, tuple | list):
        return tuple(torch.cat([b[i] for b in batches]) for i in range(len(first)))
    return torch.cat(batches)
