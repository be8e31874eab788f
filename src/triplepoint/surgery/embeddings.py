"""One learnable scalar on the input embeddings, as the language-model recipes of DyT and Derf have it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from triplepoint.surgery.origins import Origin


class ScaledEmbedding(nn.Embedding):
    """An embedding whose output is multiplied by one learnable scalar, shared by all of a model's embeddings.

    The table itself is not touched, so a head tied to it is not scaled. The first embedding holds the scalar as
    its parameter ``scale``; the others look it up there, so that it is saved once.
    """

    @classmethod
    def of(cls, embedding: nn.Embedding, leader: ScaledEmbedding | None = None) -> ScaledEmbedding:
        """Return ``embedding`` with a scale: the same parameters, hooks and mode.

        Args:
            embedding: What to scale; not changed.
            leader: The embedding whose scale to use; None to have one of its own, born as sqrt(width).
        """
        scaled = cls.__new__(cls)
        scaled.__dict__.update(embedding.__dict__)
        scaled.__dict__["_parameters"] = dict(embedding._parameters)
        scaled.__dict__["_replaced"] = Origin(module=embedding)
        scaled.__dict__["_leader"] = None if leader is None else (leader,)
        if leader is None:
            table, born = embedding.weight, math.sqrt(embedding.embedding_dim)
            scalar = torch.full((1,), born, device=table.device, dtype=table.dtype)
            scaled._parameters["scale"] = nn.Parameter(scalar)
        return scaled

    @property
    def scale(self) -> Tensor:
        """The scalar, of shape ``(1,)``."""
        holder = self if self._leader is None else self._leader[0]
        return holder._parameters["scale"]

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up and scale; the dtype of the table."""
        y = super().forward(tokens)
        return (self.scale * y).to(y.dtype)

    def reset_parameters(self) -> None:
        """Draw the table as ``nn.Embedding`` does; the scale starts at sqrt(width)."""
        super().reset_parameters()
        if self._leader is None:
            nn.init.constant_(self.scale, math.sqrt(self.embedding_dim))

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        if self._leader is not None:
            state.pop(f"{prefix}scale", None)  # earlier versions stored it under every embedding
        super()._load_from_state_dict(state, prefix, *rest)


def scaled_tables(
    model: nn.Module, paths: list[str] | None = None
) -> list[tuple[nn.Embedding, ScaledEmbedding]]:
    """Return (embedding, what is to take its place) of the plain embeddings as wide as the first; the model is not changed."""
    # a subclass with a forward of its own may take other arguments, or scale already
    tables = [
        module
        for path, module in model.named_modules()
        if isinstance(module, nn.Embedding)
        and type(module).forward is nn.Embedding.forward
        and not parametrize.is_parametrized(module)
        and (paths is None or path in paths)
    ]
    # a table of another width is no embedding of tokens: T5 keeps its relative positions, one per head, in one
    tables = [t for t in tables if t.embedding_dim == tables[0].embedding_dim]
    pairs: list[tuple[nn.Embedding, ScaledEmbedding]] = []
    for table in tables:
        pairs.append((table, ScaledEmbedding.of(table, pairs[0][1] if pairs else None)))
    return pairs


def scaled_paths(model: nn.Module) -> Iterator[str]:
    """Yield the path of every embedding that has a scale, that of the first one first."""
    for path, module in model.named_modules():
        if isinstance(module, ScaledEmbedding):
            yield path


@dataclasses.dataclass(frozen=True)
class ScalePlan:
    """What a swap does to the embeddings."""

    pairs: list[tuple[nn.Module, nn.Module]]
    """(what is there, what takes its place)."""
    policy: str | None
    """The line of the report."""


def plan_scale(model: nn.Module, *, wanted: bool, may_remove: bool) -> ScalePlan:
    """Return what has to change so that the embeddings have a scale, or none."""
    if wanted:
        pairs = scaled_tables(model)
        return ScalePlan(pairs, _said(pairs))
    scaled = [m for m in model.modules() if isinstance(m, ScaledEmbedding)]
    if not (scaled and may_remove):
        return ScalePlan([], None)
    return ScalePlan(
        [(m, m.__dict__["_replaced"].module) for m in scaled],
        "embedding scale: removed, this preset has none",
    )


def _said(pairs: list[tuple[nn.Embedding, ScaledEmbedding]]) -> str:
    if not pairs:
        return "embedding scale: not applied, the model has no plain nn.Embedding (or has the scale already)"
    width = pairs[0][0].embedding_dim
    return (
        f"embedding scale: one learnable scalar on {len(pairs)} embeddings, born as sqrt({width}) = "
        f"{math.sqrt(width):.4g}"
    )
