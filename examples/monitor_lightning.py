"""A monitor in a Lightning Trainer, while a small GPT-2 with DyT learns the embedded corpus.

Run it with ``python examples/monitor_lightning.py``; it writes ``runs/monitor-lightning/triplepoint.jsonl``.
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

import triplepoint as tp
from triplepoint.integrations.lightning import MonitorCallback
from triplepoint.models import GPT2, GPT2Config
from triplepoint.objectives import Objective


class Language(LightningModule):
    """Next-token prediction."""

    def __init__(self, vocab):
        super().__init__()
        self.model = GPT2(GPT2Config(width=32, layers=2, heads=2, vocab=vocab, context=32))
        tp.swap_norms(self.model, "dyt")

    def training_step(self, batch, index):
        """Return the loss, which is all that the monitor needs."""
        return Objective().loss(self.model, batch)

    def validation_step(self, batch, index):
        """Log the loss under the name that the monitor looks for."""
        self.log("val_loss", Objective().loss(self.model, batch), batch_size=len(batch))

    def configure_optimizers(self):
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main(steps=60, folder="runs/monitor-lightning"):
    """Train, and return the monitor."""
    text = tp.load_corpus(context=32)
    train = DataLoader(text.windows("train", context=32, count=8 * steps), batch_size=8)
    validation = DataLoader(text.windows("validation", context=32, count=16), batch_size=16)

    callback = MonitorCallback(every=10)
    trainer = Trainer(
        max_steps=steps, callbacks=[callback], val_check_interval=20, default_root_dir=folder, accelerator="cpu",
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Language(text.vocab), train, validation)
    print(f"{callback.monitor.phase.phase}: {callback.monitor.phase.reason}")
    return callback.monitor


if __name__ == "__main__":
    main()
