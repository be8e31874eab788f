"""One evaluation of a network that may grok: losses, accuracies, norms, refitted head, Fourier features."""

from __future__ import annotations

import dataclasses
import math

from torch import Tensor, nn

from triplepoint.grokking.refitting import (
    RidgeHead,
    complexity,
    head_distance,
    refit_head,
    unit_imbalance,
)
from triplepoint.monitoring.embeddings import find_embedding, fourier_rows
from triplepoint.monitoring.networks import (
    PROBED,
    Reader,
    Samples,
    find_head,
    find_two_layers,
    width_of,
)
from triplepoint.monitoring.quantities import Loss

Rows = list[tuple[str, str | None, float]]
"""(metric, site, value)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What one evaluation found."""

    rows: Rows
    train_accuracy: float | None
    """None where outputs are no classes, or the loss is not finite."""
    val_accuracy: float | None
    zero_loss_share: float
    finite: bool
    """Whether the training loss is finite."""


class Meter:
    """Measures one model on its training and held-out samples.

    Args:
        model: As for :class:`GrokMonitor`, and so are the others.
        train: Training set.
        validation: Held-out samples, or None.
        loss: "mse" or "cross_entropy".
        head: Path of the head, or None.
        embedding: Path of the residues' embedding, or None.
        rows: How many samples go through at once.
    """

    def __init__(
        self,
        model: nn.Module,
        train: tuple[Tensor, Tensor],
        validation: tuple[Tensor, Tensor] | None,
        *,
        loss: Loss,
        head: str | None,
        embedding: str | None,
        rows: int,
    ):
        self.model, self.loss, self._rows = model, loss, rows
        self.width = width_of(model, train[0])
        self.train = Samples.of(train, model, outputs=self.width)
        self.validation = validation and Samples.of(validation, model, outputs=self.width)
        probe = self.train.X[:PROBED]
        self.head = find_head(model, probe, named=head)
        self.layers = find_two_layers(model, probe, self.head)
        self.embedding, self.no_embedding = find_embedding(
            model, self.train, layers=self.layers, named=embedding
        )
        self._reader: Reader | None = None

    def attach(self) -> None:
        """Register the hook on the head, off except while reading."""
        if self._reader is None:
            self._reader = Reader(self.model, self.head, rows=self._rows)

    def detach(self) -> None:
        """Remove the hook."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _read(self, samples: Samples) -> tuple[Tensor, Tensor | None]:
        if self._reader is not None:
            return self._reader.read(samples.X)
        with Reader(self.model, self.head, rows=self._rows) as reader:
            return reader.read(samples.X)

    def losses(self) -> dict[str, Tensor]:
        """Return ``train_loss`` and, with held-out samples, ``val_loss``: the loss of each sample."""
        sets = {"val_loss": self.validation, "train_loss": self.train}
        return {
            name: samples.losses(self._read(samples)[0], self.loss)
            for name, samples in sets.items()
            if samples is not None
        }

    def measure(self) -> Measured:
        """Measure everything that applies to the network as it is now."""
        outputs, features = self._read(self.train)
        losses = self.train.losses(outputs, self.loss)
        rows: Rows = [("train_loss", None, losses.double().mean().item())]
        held, held_features = (
            (None, None) if self.validation is None else self._read(self.validation)
        )
        if held is not None:
            loss = self.validation.losses(held, self.loss).double().mean().item()
            rows.append(("val_loss", None, loss))
        rows += self._norms()
        zero, train, val = 0.0, None, None
        finite = math.isfinite(rows[0][2])
        if finite and self.loss == "cross_entropy":
            zero = (losses == 0).double().mean().item()
            rows.append(("zero_loss_share", None, zero))
        if finite and self.width > 1:
            train = self.train.accuracy(outputs)
            val = None if held is None else self.validation.accuracy(held)
            named = (("train_accuracy", train), ("val_accuracy", val))
            rows += [(name, None, value) for name, value in named if value is not None]
        if finite:
            rows += self._structure()
            rows += [] if features is None else self._refitted(features, held_features)
        return Measured(
            rows=rows, train_accuracy=train, val_accuracy=val, zero_loss_share=zero, finite=finite
        )

    def _norms(self) -> Rows:
        squares = {
            name: p.detach().double().square().sum().item()
            for name, p in self.model.named_parameters()
            if p.requires_grad
        }
        by_layer = [("weight_norm_sq", name, value) for name, value in squares.items()]
        return [*by_layer, ("norm_sq", None, sum(squares.values()))]

    def _structure(self) -> Rows:
        rows: Rows = []
        if self.layers is not None:
            rows.append(("unit_imbalance", None, unit_imbalance(self.layers.W1, self.layers.W2)))
        if self.embedding is not None:
            rows += fourier_rows(self.embedding())
        return rows

    def _refitted(self, features: Tensor, held: Tensor | None) -> Rows:
        """Refit the head on the training features; its own bias decides whether an intercept is fitted."""
        best = refit_head(features, self.train.Y, intercept=self.head.layer.bias is not None)
        rows: Rows = []
        if self.width > 1:
            rows.append(("refit_train_accuracy", None, self.train.accuracy(best.predict(features))))
        if self.width > 1 and held is not None:
            rows.append(("refit_val_accuracy", None, self.validation.accuracy(best.predict(held))))
        return rows + self._against(best)

    def _against(self, best: RidgeHead) -> Rows:
        rows: Rows = []
        if self.layers is not None:
            rows.append(("complexity", None, complexity(self.layers.W1, best.W2)))
        # under cross-entropy the head grows without bound: its distance from the ridge optimum says nothing
        if self.loss == "mse" and best.W2.any():
            own = self.head.layer.weight.detach().T
            rows.append(("head_distance", None, head_distance(own, best.W2)))
        return rows
