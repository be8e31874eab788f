"""What our loop costs: its training step over that of a bare PyTorch loop, same model and batches.

gpt2-0.4m, batch 8 x 128 bytes, one thread. The bare loop is the strong form: fused AdamW with the same two
groups, the same clipping and learning-rate schedule, one read of the loss per step, no Accelerate, no hooks.
Ours is what ``triplepoint train`` runs, the probe sampling every 10 steps; evaluations and checkpoints,
which the bare loop does not have, lie outside the timed steps. Runs alternate; CPU time of the process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from benchmarks._table import finish, summary
from triplepoint.blueprints import Shape
from triplepoint.data import Corpus, load_corpus
from triplepoint.measurement import Probe
from triplepoint.objectives import Objective, cross_entropy
from triplepoint.recipes import Recipe
from triplepoint.runs import RunFolder
from triplepoint.sweeps import build_model
from triplepoint.training import decay_groups, train

WARM = 10


def model_of(corpus: Corpus) -> torch.nn.Module:
    """Return the same model every time."""
    torch.manual_seed(0)
    return build_model("gpt2-0.4m", op=None, shape=Shape(vocab=corpus.vocab, context=128))


def bare(corpus: Corpus, recipe: Recipe, steps: int) -> float:
    """Return the CPU seconds of ``steps`` steps of a loop written by hand."""
    model = model_of(corpus)
    optimizer = torch.optim.AdamW(
        decay_groups(model, recipe.weight_decay), lr=recipe.lr, betas=recipe.betas, fused=True
    )
    batches = corpus.batches(0, batch=recipe.batch, context=128)
    start = 0.0
    for step in range(1, steps + WARM + 1):
        if step == WARM + 1:
            start = time.process_time()
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr_at(step)
        batch = next(batches)
        loss = cross_entropy(model(batch[:, :-1]), batch).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
    return time.process_time() - start


def ours(corpus: Corpus, recipe: Recipe, steps: int) -> float:
    """Return the CPU seconds of the same steps of :func:`triplepoint.training.train`."""
    model, objective = model_of(corpus), Objective()
    windows = {name: corpus.windows("train", context=128, count=8) for name in ("val", "train")}
    seen: dict[int, float] = {}
    with (
        tempfile.TemporaryDirectory() as path,
        RunFolder(Path(path), asked={}, kind="train") as folder,
    ):
        probe = Probe(model, objective, windows, every=recipe.sample_every)
        train(
            model,
            lambda start: corpus.batches(0, batch=recipe.batch, context=128, start=start),
            objective=objective,
            recipe=recipe,
            instrument=probe,
            folder=folder,
            arm="layernorm",
            tokens_per_step=1024,
            progress=lambda step, loss: seen.__setitem__(step, time.process_time()),
        )
        probe.close()
    return seen[steps + WARM] - seen[WARM]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loop_overhead")
    parser.add_argument("--quick", action="store_true", help="under 50 s on two cores")
    quick = parser.parse_args().quick
    rounds, steps = (5, 35) if quick else (10, 150)
    torch.set_num_threads(1)
    corpus = load_corpus(context=128)
    recipe = Recipe(steps=steps + WARM + 1)  # the one evaluation comes after the timed steps
    bare(corpus, recipe, 20)
    ratios = []
    for _ in range(rounds):
        before, mine, after = (
            bare(corpus, recipe, steps),
            ours(corpus, recipe, steps),
            bare(corpus, recipe, steps),
        )
        ratios.append(2 * mine / (before + after))
    finish("loop_overhead", {"ours_over_bare": summary(ratios)}, {"ours_over_bare": 1.03})


if __name__ == "__main__":
    main()
