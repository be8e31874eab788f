"""What the probe costs: a training step with it over the same step without.

gpt2-0.8m with DyT, batch 8 x 128 bytes, one thread. One model trains; blocks of ten steps go by turns
without the probe's hooks doing anything, sampling every 10th step and sampling every step, so that all see
the same weights and the same state of the machine. Time is the process's own CPU time.
"""

from __future__ import annotations

import argparse
import itertools
import time

import torch

from benchmarks._table import finish, summary
from triplepoint.blueprints import Shape
from triplepoint.data import load_corpus
from triplepoint.measurement import Probe
from triplepoint.objectives import Objective
from triplepoint.sweeps import build_model
from triplepoint.training import decay_groups

BLOCK = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.probe_overhead")
    parser.add_argument("--quick", action="store_true", help="under 50 s on two cores")
    rounds = 6 if parser.parse_args().quick else 40
    torch.set_num_threads(1)
    torch.manual_seed(0)
    corpus, objective = load_corpus(context=128), Objective()
    model = build_model("gpt2-0.8m", op="dyt", shape=Shape(vocab=corpus.vocab, context=128))
    optimizer = torch.optim.AdamW(decay_groups(model, 0.1), lr=1e-3, fused=True)
    batches = corpus.batches(0, batch=8, context=128)
    windows = {name: corpus.windows("train", context=128, count=8) for name in ("val", "train")}
    probes = {}

    def block(every: int | None) -> float:
        """Return the CPU seconds of ten steps; None is without a probe at all."""
        probe = None
        if every is not None:
            probe = probes[every] = Probe(model, objective, windows, every=every)
        ten = list(itertools.islice(batches, BLOCK))
        start = time.process_time()
        for step, batch in enumerate(ten, 1):
            if probe is not None:
                probe.before_step(step)
            loss = objective.loss(model, batch)
            loss.backward()
            if probe is not None:
                probe.after_backward(step)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        spent = time.process_time() - start
        if probe is not None:
            probe.close()
        return spent

    block(None)  # warm-up
    ratios: dict[int, list[float]] = {10: [], 1: []}
    for _ in range(rounds):
        before, tenth, each, after = block(None), block(10), block(1), block(None)
        without = (before + after) / 2
        ratios[10].append(tenth / without)
        ratios[1].append(each / without)
    finish(
        "probe_overhead",
        {"every_10_steps": summary(ratios[10]), "every_step": summary(ratios[1])},
        {"every_10_steps": 1.05, "every_step": 1.15},
    )


if __name__ == "__main__":
    main()
