"""Models that a function of the user's builds."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from triplepoint.blueprints._base import AS_IT_IS, Blueprint, Shape, refuse_dropout, refuse_images
from triplepoint.blueprints.proportions import Proportions
from triplepoint.errors import ModelError, PlanError
from triplepoint.runs import hash_of_file

_BUILT: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""Every model that was built here and is still there."""


KEYWORDS = {
    "width": ("width", "d_model", "hidden_size", "n_embd", "embed_dim", "dim"),
    "heads": ("heads", "num_heads", "n_heads", "n_head", "num_attention_heads"),
    "head_size": ("head_dim", "head_size", "d_head"),
    "kv_heads": ("kv_heads", "n_kv_heads", "num_kv_heads", "num_key_value_heads"),
}
"""What has to do with the width -> keywords that are understood, where their default is a whole number."""
OTHER_KEYWORDS = ("intermediate_size", "hidden", "d_ff", "dim_feedforward", "ffn_dim", "mlp_dim")
"""Keywords that are proportional to the width."""


@dataclasses.dataclass(frozen=True)
class CallableBlueprint(Blueprint):
    """``module:callable``: a function, or a class, that returns an ``nn.Module``.

    Its keywords ``vocab``, ``context`` and ``dropout`` are given where its signature has them.
    """

    name: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Keywords that it is called with besides."""

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
        except (Exception, SystemExit) as error:  # an import runs the user's code
            raise ModelError(
                f"{self.name} cannot be imported: {_first_line(error)}\n"
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
        given |= self.changes
        try:
            model = self.function(**given)
        except (Exception, SystemExit) as error:
            raise ModelError(
                f"{self.name}({_told(given)}) failed: {_first_line(error)}\n"
                "It is called with no other arguments than vocab, context and dropout, where it takes them."
            ) from error
        if not isinstance(model, nn.Module):
            raise ModelError(
                f"{self.name}({_told(given)}) returned a {type(model).__name__}, not an nn.Module.\n"
                "Return the model."
            )
        if any(t.is_meta for t in (*model.parameters(), *model.buffers())):
            raise ModelError(
                f"{self.name}({_told(given)}) returned a model on the meta device, where it has no values.\n"
                "Build it on the CPU."
            )
        if model in _BUILT:
            raise ModelError(
                f"{self.name}({_told(given)}) returned the same model again.\nReturn a new one each time, or "
                "each arm would go on from where the one before has left it."
            )
        _BUILT.add(model)
        return model

    def proportions(self) -> Proportions:
        """Return how its keywords follow its width.

        Raises:
            PlanError: If none of its keywords is a width.
        """
        parameters = inspect.signature(self.function).parameters.values()
        defaults = {p.name: p.default for p in parameters if type(p.default) is int} | self.changes
        found = {
            role: next((n for n in names if n in defaults), None)
            for role, names in KEYWORDS.items()
        }
        if found["width"] is None:
            raise PlanError(
                f"{self.name} takes no keyword for its width, so it has no narrower form.\n"
                f"Let it take one of {', '.join(KEYWORDS['width'])}, with a whole number as default."
            )
        values = {role: defaults[name] for role, name in found.items() if name}
        return Proportions(
            **{"head_size": values["width"] // values.get("heads", 1), **values},
            names={role: name for role, name in found.items() if name},
            others={n: defaults[n] for n in OTHER_KEYWORDS if n in defaults},
        )

    def changed(self, changes: Mapping[str, Any]) -> CallableBlueprint:
        """Return it with these keywords given besides those that are."""
        foreign = sorted(set(changes) - _names(self.function))
        if foreign:
            raise PlanError(
                f"{self.name} takes no keyword {', '.join(foreign)}.\nLeave it out for this model."
            )
        return dataclasses.replace(self, changes={**self.changes, **changes})

    def told(self) -> dict[str, Any]:
        """Return its description."""
        return {"kind": "callable", "name": self.name}


def _keywords(function: Callable) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return {"vocab", "context", "dropout"}
    return _names(function)


def _names(function: Callable) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]


def _told(given: dict[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in given.items())
