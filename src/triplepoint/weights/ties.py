"""Tables that some exporters store twice: once as the embedding, once as the head that is tied to it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import torch
from torch import Tensor

from triplepoint.weights.checkpoint import TensorEntry
from triplepoint.weights.safetensors_files import Place

_HEADS = ("lm_head.weight", "embed_out.weight", "cls.predictions.decoder.weight", "output.weight")
_TABLES = ("wte.weight", "embed_tokens.weight", "embed_in.weight", "word_embeddings.weight",
           "tok_embeddings.weight", "shared.weight")  # fmt: skip


def stored_twice(
    entries: Mapping[str, TensorEntry], places: Mapping[str, Place]
) -> dict[str, TensorEntry]:
    """Return the head, tied to its table, where both are stored and equal bit for bit; else nothing.

    Only names that models give to heads and tables are looked at, a few MiB at a time up to the first difference.
    """
    heads = [n for n in places if n.endswith(_HEADS)]
    tables = [n for n in places if n.endswith(_TABLES)]
    for head, table in itertools.product(heads, tables):
        one, other = places[head], places[table]
        alike = (one.shape, one.dtype) == (other.shape, other.dtype) and len(one.shape) == 2
        if alike and all(map(_equal_bytes, one.pieces(), other.pieces())):
            return {head: dataclasses.replace(entries[head], tied_to=table)}
    return {}


def _equal_bytes(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))
