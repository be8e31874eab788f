"""Numbers that follow from the paper's settings: parameters, tokens per parameter, rates, epochs."""

from __future__ import annotations

import functools

import torch

from studies.published_numbers.values import Values
from triplepoint.models import GPT2, GPT2Config, config_of, parameter_counts
from triplepoint.published import load_cells
from triplepoint.recipes import Recipe
from triplepoint.surgery import swap_norms

NAMED = {
    "S1": "gpt2-64m",
    "S2": "gpt2-124m",
    "S3": "gpt2-354m",
    "S4": "gpt2-1.3b",
    "S5": "gpt2-3.8b",
}
RATES = {"S1": 3e-4, "S4": 1e-4}
"""Peak learning rates of the smaller three scales and of the larger two."""
FLOOR = 6e-5
"""Where the cosine would end, at step 600,000; the runs stop at 5,000."""


def _config(shape: str) -> GPT2Config:
    scale, _, variant = shape.partition(", ")
    own = {"attention": "paper_v1_leaky"} if variant.startswith("DiffAttn") else {}
    if variant.endswith("11 layers"):
        own["layers"] = 11
    if scale == "S2.5":
        return GPT2Config(width=896, layers=16, heads=14, vocab=50304, context=512, **own)
    named = config_of(NAMED[scale])
    return GPT2Config(**{**vars(named), **own})


@functools.cache
def _counts(shape: str) -> dict[str, int]:
    with torch.device("meta"):
        model = GPT2(_config(shape))
        if shape.endswith(", DyT"):
            swap_norms(model, "dyt:paper")
    return parameter_counts(model)


def params_millions(values: Values, shape: str, convention: str) -> float:
    """Return the parameters of a shape, e.g. ``S3, DyT``, in millions."""
    return _counts(shape)[convention] / 1e6


def tokens_per_parameter(values: Values, cell: str, convention: str) -> float:
    """Return a cell's unique training tokens per parameter."""
    (found,) = (c for c in load_cells() if c.name == cell)
    return found.unique_tokens / _counts(found.scale)[convention]


def norm_sites(values: Values, scale: str) -> float:
    """Return the number of norms: two a block and a last one."""
    return 2 * _config(scale).layers + 1


def lr_at(values: Values, scale: str, step: str) -> float:
    """Return the learning rate of an update: 2,000 steps of warm-up, then a cosine over 600,000."""
    rate = RATES[scale]
    recipe = Recipe(
        steps=10_000, lr=rate, warmup=2000, horizon=600_000, min_lr_ratio=min(FLOOR / rate, 1.0)
    )
    return recipe.lr_at(int(step))


def tokens_processed_millions(values: Values) -> float:
    """Return the tokens that every 5,000-step run saw, in millions."""
    return load_cells()[0].tokens_processed / 1e6


def epochs(values: Values, cell: str) -> float:
    """Return how often a run passes over its tokens."""
    (found,) = (c for c in load_cells() if c.name == cell)
    return found.epochs
