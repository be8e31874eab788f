"""The contract of a blueprint."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import nn

from triplepoint.blueprints.proportions import Proportions
from triplepoint.errors import PlanError

CONTEXT = 128
"""Tokens per sequence where the model does not say: as the small named sizes have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
    """What a model takes from its data and from who trains it; None leaves it to the model."""

    vocab: int | None = None
    context: int | None = None
    """Tokens per sequence."""
    dropout: float = 0.0
    image: tuple[int, int, int] | None = None
    """Height (and width), channels and classes."""


AS_IT_IS = Shape()
"""Everything left to the model."""


class Blueprint(abc.ABC):
    """A model that can be built again."""

    name: str
    """What was typed, with paths made absolute: it builds the same model in another process."""

    @property
    @abc.abstractmethod
    def identity(self) -> str | None:
        """What tells it from another model of this name, e.g. a hash of its configuration; None where the name does."""

    @property
    def context(self) -> int:
        """Tokens per sequence where none are asked for."""
        return CONTEXT

    @abc.abstractmethod
    def build(self, shape: Shape = AS_IT_IS) -> nn.Module:
        """Return the model, newly initialised from torch's random state.

        Raises:
            PlanError: If the shape does not fit the model.
            ModelError: If it cannot be built.
        """

    def proportions(self) -> Proportions:
        """Return how its configuration follows its width.

        Raises:
            PlanError: If its width cannot be chosen.
        """
        raise PlanError(
            f"The width of {self.name} cannot be chosen, so it has no narrower form.\n"
            "Give a named size, the config.json of a Hugging Face model, or module:callable with a keyword width."
        )

    def changed(self, changes: Mapping[str, Any]) -> Blueprint:
        """Return the blueprint of the same model with fields of its configuration changed.

        Raises:
            PlanError: If it has no such field.
        """
        raise PlanError(
            f"{self.name} is no named size: it has no {', '.join(sorted(changes))} to choose.\n"
            "Change its own configuration."
        )

    @property
    def architecture(self) -> Blueprint:
        """What builds the model before anything was swapped or trained: itself, but for a run."""
        return self

    def trained(self) -> nn.Module | None:
        """Return the model with the weights that come with it, in eval mode; None where there are none."""
        return None

    def model(self) -> nn.Module:
        """Return the model with the weights that come with it, else newly initialised."""
        trained = self.trained()
        return self.build() if trained is None else trained

    @abc.abstractmethod
    def told(self) -> dict[str, Any]:
        """Return the description that :func:`triplepoint.blueprints.naming.blueprint_from` reads."""


def refuse_dropout(name: str, shape: Shape, *, remedy: str) -> None:
    """Refuse a dropout that cannot be given to a model that has its own.

    Raises:
        PlanError: If there is one.
    """
    if shape.dropout:
        raise PlanError(
            f"dropout {shape.dropout:g} cannot be set in {name}, which has its own.\n{remedy}"
        )


def refuse_images(name: str, shape: Shape) -> None:
    """Refuse images where the model reads tokens.

    Raises:
        PlanError: If there are some.
    """
    if shape.image is not None:
        raise PlanError(f"{name} reads tokens, the data are images.\nChoose a vit size.")
