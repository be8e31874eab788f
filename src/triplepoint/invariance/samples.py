"""Inputs of a model: drawn where none are given, and altered where they must not matter.

Axes: the first tensor of the inputs is ``[batch, seq]`` of ids or ``[batch, seq, dim]`` of numbers where the
model reads sequences; anything else has no positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from triplepoint.errors import ModelError

ROWS = 3
LENGTHS = (29, 31, 37, 23, 19, 17, 13, 11, 7, 5, 4, 2)
"""Lengths to draw from, best first: odd enough that an axis of that size is told from any other."""

_CONTEXT_NAMES = (
    "context", "context_length", "block_size", "n_positions", "n_ctx", "max_position_embeddings", "max_seq_len",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """Inputs in the form that the model takes them: one tensor, positional arguments, or keywords."""

    inputs: Tensor | tuple | Mapping[str, Any]
    key: int | str | None
    """Where in ``inputs`` the tensor is that is altered; None where they are that tensor."""
    ids: Tensor | None
    """Ids to draw from; None for numbers."""

    @property
    def main(self) -> Tensor:
        """The tensor that is altered."""
        return self.inputs if self.key is None else self.inputs[self.key]

    @property
    def batch(self) -> int:
        """Number of rows."""
        return self.main.shape[0]

    @property
    def seq(self) -> int | None:
        """Number of positions; None where the inputs are no sequences."""
        has_positions = self.main.ndim == 3 or (self.main.ndim == 2 and self.ids is not None)
        return self.main.shape[1] if has_positions else None

    def with_suffix(self, cut: int) -> Any:
        """Return the inputs with every position from ``cut`` on changed."""
        main = self.main.clone()
        main[:, cut:] = self._others(main[:, cut:])
        return self._with(main)

    def with_other_rows(self) -> Any:
        """Return the inputs with every row but the first changed."""
        main = self.main.clone()
        main[1:] = self._others(main[1:])
        return self._with(main)

    def prefix(self, length: int) -> Any:
        """Return the first ``length`` positions of every tensor that has as many as the inputs."""

        def cut(x: Tensor) -> Tensor:
            axes = [
                axis
                for axis, size in enumerate(x.shape)
                if size == self.seq and (axis or x.ndim == 1)
            ]
            for axis in axes:
                x = x.narrow(axis, 0, length)
            return x

        return self._mapped(cut)

    def first_row(self) -> Any:
        """Return the first row of every tensor that has as many rows as the inputs."""
        return self._mapped(lambda x: x[:1] if x.ndim and x.shape[0] == self.batch else x)

    def to(self, dtype: torch.dtype) -> Sample:
        """Return the inputs with their numbers, not their ids, as ``dtype``."""
        cast = self._mapped(lambda x: x.to(dtype) if x.is_floating_point() else x)
        return dataclasses.replace(self, inputs=cast)

    def widened(self) -> Sample:
        """Return at least :data:`ROWS` rows: rows that are missing repeat the others, with changed contents."""
        if self.batch >= ROWS:
            return self
        rows = torch.arange(ROWS) % self.batch
        wide = self._mapped(
            lambda x: x[rows.to(x.device)] if x.ndim and x.shape[0] == self.batch else x
        )
        repeated = dataclasses.replace(self, inputs=wide)
        main = repeated.main.clone()
        main[self.batch :] = self._others(main[self.batch :])
        return dataclasses.replace(repeated, inputs=repeated._with(main))

    def _others(self, x: Tensor) -> Tensor:
        """Return another value for every entry of ``x``: the next id or a later one, or added noise."""
        generator = torch.Generator().manual_seed(1)
        if self.ids is None:
            noise = torch.randn(x.shape, generator=generator).to(x)
            return x + noise * (1 + x.abs().mean())
        count = len(self.ids)
        at = torch.searchsorted(self.ids, x.contiguous()).clamp(max=count - 1)
        steps = torch.randint(1, count, x.shape, generator=generator).to(x.device)
        return self.ids[(at + steps) % count].to(x.dtype)

    def _with(self, main: Tensor) -> Any:
        if self.key is None:
            return main
        if isinstance(self.inputs, tuple):
            return (*self.inputs[: self.key], main, *self.inputs[self.key + 1 :])
        return {**self.inputs, self.key: main}

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Any:
        def one(value: Any) -> Any:
            return change(value) if isinstance(value, Tensor) else value

        if isinstance(self.inputs, Tensor):
            return change(self.inputs)
        if isinstance(self.inputs, tuple):
            return tuple(map(one, self.inputs))
        return {name: one(value) for name, value in self.inputs.items()}


def sample_for(model: nn.Module, inputs: Any = None) -> Sample:
    """Return given inputs as a sample, or draw token ids: the vocabulary is the first ``nn.Embedding``'s.

    Raises:
        ModelError: If nothing is given and there is no embedding, or what is given holds no tensor.
    """
    table = _token_table(model)
    if inputs is None:
        if table is None:
            raise ModelError(
                f"{type(model).__name__} has no nn.Embedding, so its inputs cannot be guessed.\n"
                "Pass inputs=: a tensor [batch, seq, ...], a tuple of arguments or a mapping of keywords."
            )
        ids = _ids_of(table)
        generator = torch.Generator().manual_seed(0)
        shape = (ROWS, _length_for(model, table))
        tokens = torch.randint(len(ids), shape, generator=generator).to(ids.device)
        return Sample(inputs=ids[tokens], key=None, ids=ids)
    inputs = tuple(inputs) if isinstance(inputs, list) else inputs
    sample = Sample(inputs=inputs, key=_key_of(inputs), ids=None)
    if sample.main.is_floating_point():
        return sample
    ids = torch.arange(int(sample.main.max()) + 1) if table is None else _ids_of(table)
    return dataclasses.replace(sample, ids=ids.to(sample.main.device))


def _key_of(inputs: Any) -> int | str | None:
    if isinstance(inputs, Tensor) and inputs.ndim:
        return None
    parts = inputs if isinstance(inputs, Mapping) else {}
    parts = dict(enumerate(inputs)) if isinstance(inputs, tuple) else parts
    if isinstance(parts.get("input_ids"), Tensor):
        return "input_ids"
    found = next((k for k, v in parts.items() if isinstance(v, Tensor) and v.ndim), None)
    if found is None:
        raise ModelError(
            f"The inputs are a {type(inputs).__name__} without a tensor that has a batch axis.\n"
            "Pass a tensor [batch, seq, ...], a tuple of arguments or a mapping of keywords."
        )
    return found


def _tables(model: nn.Module) -> dict[str, nn.Embedding]:
    return {name: m for name, m in model.named_modules() if isinstance(m, nn.Embedding)}


def _is_of_positions(name: str) -> bool:
    return "pos" in name.lower() or name.endswith("wpe")


def _token_table(model: nn.Module) -> nn.Embedding | None:
    return next((m for name, m in _tables(model).items() if not _is_of_positions(name)), None)


def _ids_of(table: nn.Embedding) -> Tensor:
    """All ids but that of padding, which models treat apart."""
    ids = torch.arange(table.num_embeddings, device=table.weight.device)
    if table.padding_idx is not None:
        ids = ids[ids != table.padding_idx]
    if len(ids) < 2:
        raise ModelError(
            f"The model's first embedding knows {len(ids)} id, so no token can be changed.\n"
            "Pass inputs= of another kind, or a model with a larger vocabulary."
        )
    return ids


def _length_for(model: nn.Module, tokens: nn.Embedding) -> int:
    """The best of :data:`LENGTHS` that the model's positions allow and no parameter has as a size."""
    config = getattr(model, "config", None)
    limits = [getattr(config, name, None) for name in _CONTEXT_NAMES]
    limits += [m.num_embeddings for name, m in _tables(model).items() if _is_of_positions(name)]
    limits += [
        p.shape[-2] for name, p in model.named_parameters() if _is_of_positions(name) and p.ndim > 1
    ]
    longest = min([n for n in limits if isinstance(n, int) and n > 1], default=LENGTHS[0])
    sizes = {size for p in model.parameters() for size in p.shape}
    allowed = [n for n in LENGTHS if n <= longest]
    return next((n for n in allowed if n not in sizes), allowed[0])
