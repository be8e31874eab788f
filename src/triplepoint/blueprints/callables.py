"""Models that a function of the user's builds."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from triplepoint.blueprints._base import AS_IT_IS, Blueprint, Shape, refuse_dropout, refuse_images
from triplepoint.errors import ModelError
from triplepoint.runs import hash_of_file


@dataclasses.dataclass(frozen=True)
class CallableBlueprint(Blueprint):
    """``module:callable``: a function, or a class, that returns an ``nn.Module``.

    Its keywords ``vocab``, ``context`` and ``dropout`` are given where its signature has them.
    """

    name: str

    @functools.cached_property
    def function(self) -> Callable[..., nn.Module]:
        """What is called.

        Raises:
            ModelError: If it cannot be imported, or is nothing that can be called.
        """
        module_name, _, attribute = self.name.partition(":")
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # as `python -m` has it
        try:
            found: Any = importlib.import_module(module_name)
            for part in attribute.split("."):
                found = getattr(found, part)
        except Exception as error:  # an import runs the user's code
            raise ModelError(
                f"{self.name} cannot be imported: {type(error).__name__}: {error}\n"
                "MODEL is module:callable, of a module that Python finds from this folder."
            ) from error
        if not callable(found) or isinstance(found, nn.Module):
            raise ModelError(
                f"{self.name} is a {type(found).__name__}, nothing that builds a model.\n"
                "Name a function or class that returns a new nn.Module each time."
            )
        return found

    @property
    def identity(self) -> str:
        """Hash of the source file that defines it."""
        try:
            file = inspect.getsourcefile(inspect.unwrap(self.function))
        except TypeError:
            file = None
        return hash_of_file(Path(file)) if file else self.name

    def build(self, shape: Shape = AS_IT_IS) -> nn.Module:
        """Call it."""
        refuse_images(self.name, shape)
        known = _keywords(self.function)
        if "dropout" not in known:
            refuse_dropout(self.name, shape, remedy="Let it take the keyword dropout, or leave --dropout out.")  # fmt: skip
        given = {k: v for k, v in dataclasses.asdict(shape).items() if k in known and v is not None}
        try:
            model = self.function(**given)
        except Exception as error:
            raise ModelError(
                f"{self.name}({_told(given)}) failed: {type(error).__name__}: {error}\n"
                "It must return a model with no other arguments than vocab, context and dropout."
            ) from error
        if not isinstance(model, nn.Module):
            raise ModelError(
                f"{self.name}({_told(given)}) returned a {type(model).__name__}, not an nn.Module.\n"
                "Return the model."
            )
        return model

    def told(self) -> dict[str, Any]:
        """Return its description."""
        return {"kind": "callable", "name": self.name}


def _keywords(function: Callable) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return {"vocab", "context", "dropout"}
    return {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}


def _told(given: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in given.items())
