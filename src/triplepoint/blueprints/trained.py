"""Models of finished runs: the architecture of a run folder, and what it was trained to."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from triplepoint.blueprints._base import AS_IT_IS, Blueprint, Shape
from triplepoint.blueprints.sizes import SizeBlueprint
from triplepoint.errors import ModelError
from triplepoint.runs import read_json
from triplepoint.surgery import swap_norms
from triplepoint.weights import load_into, load_tensors


@dataclasses.dataclass(frozen=True)
class RunBlueprint(Blueprint):
    """The architecture that a run was made from, as it was before any swap; :meth:`trained` is the run's own model."""

    name: str
    """The run folder, absolute."""
    naming: Callable[[str], Blueprint]
    """Finds the blueprint of the model that the run names."""

    @functools.cached_property
    def manifest(self) -> dict[str, Any]:
        """What the run's manifest holds."""
        return read_json(Path(self.name) / "manifest.json")

    @functools.cached_property
    def base(self) -> Blueprint:
        """The model that the run was made from.

        Raises:
            ModelError: If it was given as a Python object.
        """
        facts, asked = self.manifest.get("model"), self.manifest.get("asked")
        name = facts.get("name") if isinstance(facts, dict) else None
        if name is None and isinstance(asked, dict):
            name = asked.get("size")  # a run that has not got as far as its model
        if not isinstance(name, str) or name == "module":
            raise ModelError(
                f"{self.name} was made from a model object, which a folder cannot build again.\n"
                "Give the model as module:callable, or screen it from Python with triplepoint.screen(build, batches, ...)."
            )
        found = self.naming(name)
        if not isinstance(found, SizeBlueprint):
            return found
        changes = asked.get("changes") if isinstance(asked, dict) else None
        return dataclasses.replace(found, own=self._shape, changes=changes or {})

    @property
    def architecture(self) -> Blueprint:
        """The base model."""
        return self.base

    @property
    def identity(self) -> str | None:
        """The base model's."""
        return self.base.identity

    @property
    def context(self) -> int:
        """The run's."""
        return self._shape.context or self.base.context

    @property
    def _shape(self) -> Shape:
        asked, data = self.manifest.get("asked"), self.manifest.get("data")
        found = {
            "vocab": data.get("vocab") if isinstance(data, dict) else None,
            "context": asked.get("context") if isinstance(asked, dict) else None,
        }
        return Shape(**{k: v for k, v in found.items() if isinstance(v, int)})

    def build(self, shape: Shape = AS_IT_IS) -> nn.Module:
        """Return the base model, newly initialised."""
        return self.base.build(shape)

    def trained(self) -> nn.Module:
        """Return the run's model with its op, and with the weights of its lowest validation loss where they are kept."""
        model, op = self.build(self._shape), self.manifest.get("op")
        if isinstance(op, str):
            swap_norms(model, op)
        best = Path(self.name) / "checkpoints" / "best" / "model.safetensors"
        if best.exists():
            load_into(model, load_tensors(best), source=best)
        return model.eval()

    def told(self) -> dict[str, Any]:
        """Return the base model's description."""
        return self.base.told()
