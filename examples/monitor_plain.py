"""A monitor in a loop of your own, while a small GPT-2 with DyT learns the embedded corpus.

Run it with ``python examples/monitor_plain.py``; it writes ``runs/monitor-plain/triplepoint.jsonl``.
"""

import torch

import triplepoint as tp
from triplepoint.integrations.session import Session
from triplepoint.models import GPT2, GPT2Config
from triplepoint.objectives import Objective


def main(steps=60, folder="runs/monitor-plain"):
    """Train, and return the monitor."""
    torch.manual_seed(0)
    text = tp.load_corpus(context=32)
    windows = text.windows("validation", context=32, count=16)
    batches = text.batches(0, batch=8, context=32)
    model = GPT2(GPT2Config(width=32, layers=2, heads=2, vocab=text.vocab, context=32))
    tp.swap_norms(model, "dyt")
    optimizer, objective = torch.optim.AdamW(model.parameters(), lr=3e-3), Objective()

    monitor = tp.Monitor(model, every=10, plateau=text.unigram_cross_entropy(windows))
    with Session(monitor, folder) as session:
        for step in range(1, steps + 1):
            loss = objective.loss(model, next(batches))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses = {"train_loss": loss.item()}
            if step % 20 == 0:
                model.eval()
                with torch.no_grad():
                    losses["val_loss"] = objective.loss(model, windows).item()
                model.train()
            session.observe(step, **losses)
    print(f"{monitor.phase.phase}: {monitor.phase.reason}")
    return monitor


if __name__ == "__main__":
    main()
