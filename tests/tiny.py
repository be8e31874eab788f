"""Small models and runs that several test files share."""

import dataclasses

import torch

from triplepoint.data import Corpus
from triplepoint.models import GPT2, GPT2Config
from triplepoint.objectives import Objective
from triplepoint.recipes import Recipe
from triplepoint.surgery import swap_norms
from triplepoint.sweeps import run_arm

CONTEXT = 16
CONFIG = GPT2Config(width=16, layers=1, heads=2, vocab=32, context=CONTEXT)


def corpus(*, seed=0, length=20_000):
    """Tokens in which each one mostly follows from the one before: learnable in a few dozen steps."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, 4, (length,), generator=generator)
    tokens = (steps.cumsum(0) * steps % 32).long()
    return Corpus.from_tokens(
        tokens[: length // 2],
        tokens[length // 2 : 3 * length // 4],
        tokens[3 * length // 4 :],
        vocab=32,
        source="a random walk",
    )


def build(op=None, **changes):
    """Return a function of the seed that builds a tiny GPT-2 with ``op`` for its norms."""

    def model_of(seed):
        model = GPT2(dataclasses.replace(CONFIG, **changes))
        if op is not None:
            swap_norms(model, op)
        return model

    return model_of


def train_tiny(
    path,
    *,
    op="dyt",
    recipe=None,
    until=None,
    progress=lambda step, loss: None,
    model=None,
    **changes,
):
    """Train a tiny arm into ``path``."""
    text = corpus()
    recipe = recipe or Recipe(
        steps=20, warmup=5, batch=4, eval_steps=(5, 10, 15), checkpoint_every=4
    )
    windows = {
        name: text.windows(split, context=CONTEXT, count=16)
        for name, split in (("val", "validation"), ("train", "train"), ("report", "report"))
    }
    return run_arm(
        path,
        asked={"op": op},
        build=model or build(op, **changes),
        batches=lambda start: text.batches(
            recipe.seed, batch=recipe.batch, context=CONTEXT, start=start
        ),
        windows=windows,
        objective=Objective(),
        recipe=recipe,
        arm=op or "layernorm",
        facts={"plateau": {n: text.unigram_cross_entropy(windows[n]) for n in ("val", "train")}},
        until=until,
        progress=progress,
    )


TIMINGS = {"step_time", "step_wall_time", "tokens_per_s", "peak_memory"}
"""What a clock says differs from run to run."""


def comparable(run):
    """Return the records that must be the same each time, in order."""
    return [r for r in run.records if r.metric not in TIMINGS]
