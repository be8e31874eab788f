"""Named sizes, and runs of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import nn

from triplepoint.blueprints._base import AS_IT_IS, CONTEXT, Blueprint, Shape
from triplepoint.blueprints.proportions import Proportions
from triplepoint.errors import PlanError
from triplepoint.models import ViTConfig, config_of, model_of
from triplepoint.models.sizes import Config


def config_for(size: str, shape: Shape, changes: Mapping[str, Any]) -> Config:
    """Return a named size's configuration for its data, with fields changed.

    Args:
        size: A named size.
        shape: Of its data.
        changes: Field -> value.

    Raises:
        UnknownNameError: If there is no such size.
        PlanError: If the size has no such field, the shape is impossible, or the images are of another shape.

    Example:
        >>> config_for("gpt2-0.1m", Shape(context=64), {"heads": 2}).heads
        2
    """
    config = config_of(size, vocab=shape.vocab, context=shape.context, dropout=shape.dropout)
    if shape.image is not None:
        config = dataclasses.replace(config, classes=_classes_for(size, config, shape.image))
    known = {field.name for field in dataclasses.fields(config)}
    foreign = sorted(set(changes) - known)
    if foreign:
        raise PlanError(
            f"{size} has no {', '.join(foreign)} to choose.\nLeave it out for this size; it has: {', '.join(sorted(known))}."
        )
    return dataclasses.replace(config, **changes)


def _classes_for(size: str, config: Config, image: tuple[int, int, int]) -> int:
    height, channels, classes = image
    if not isinstance(config, ViTConfig):
        raise PlanError(f"{size} reads tokens, the data are images.\nChoose a vit size.")
    if (config.image, config.channels) != (height, channels):
        raise PlanError(
            f"{size} reads images of {config.image} pixels in {config.channels} channels, the data have "
            f"{height} in {channels}.\nUse vit-4.8m for CIFAR, the other vit sizes for the digits."
        )
    return classes


@dataclasses.dataclass(frozen=True, kw_only=True)
class SizeBlueprint(Blueprint):
    """A named size, perhaps with fields of its configuration changed."""

    name: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    own: Shape = Shape()
    """What a run of it had: used where nothing else is asked for."""

    @property
    def identity(self) -> None:
        """None: the name and the changes say it all."""

    @property
    def context(self) -> int:
        """The run's, or the size's own."""
        return self.own.context or getattr(config_of(self.name), "context", CONTEXT)

    def build(self, shape: Shape = AS_IT_IS) -> nn.Module:
        """Return the model, newly initialised."""
        given = {k: v for k, v in dataclasses.asdict(shape).items() if v}
        return model_of(config_for(self.name, dataclasses.replace(self.own, **given), self.changes))

    def proportions(self) -> Proportions:
        """Return how its configuration follows its width."""
        config = config_for(self.name, self.own, self.changes)
        kv, hidden = getattr(config, "kv_heads", None), getattr(config, "hidden", None)
        return Proportions(
            width=config.width, heads=config.heads, head_size=config.width // config.heads, kv_heads=kv,
            names={name: name for name in ("width", "heads", "kv_heads")},
            others={} if hidden is None else {"hidden": hidden},
        )  # fmt: skip

    def changed(self, changes: Mapping[str, Any]) -> SizeBlueprint:
        """Return it with these fields changed besides those that are."""
        changes = {**self.changes, **changes}
        config_for(self.name, self.own, changes)
        return dataclasses.replace(self, changes=changes)

    def told(self) -> dict[str, Any]:
        """Return its description."""
        return {"kind": "size", "name": self.name, "changes": dict(self.changes), "shape": dataclasses.asdict(self.own)}  # fmt: skip
