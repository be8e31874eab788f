"""The monitor in a Lightning ``Trainer``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from triplepoint.extras import require
from triplepoint.integrations.session import Watch


class MonitorCallback(Watch, require("lightning.pytorch", extra="lightning").Callback):
    """Watches a run of ``lightning.pytorch.Trainer``; one observation per optimiser step.

    It writes records and phases to ``triplepoint.jsonl`` in the trainer's ``default_root_dir``, on rank 0. The
    training loss of a sampled step is what ``training_step`` returned, the mean over its micro-batches; evaluation
    losses are those that the module logs in validation. Sites go by their paths in the ``LightningModule``.

    ``fit(ckpt_path=...)`` goes on with the same file: lines after the checkpoint are measured again.

    Args: those of :class:`triplepoint.integrations.session.Watch`.

    Example::

        callback = MonitorCallback(every=10)
        Trainer(max_steps=1000, callbacks=[callback]).fit(module, loader)
        print(callback.monitor.phase)
    """

    LOGGED = {name: name for name in ("val_loss", "val_accuracy", "train_accuracy")}
    _step = 0
    _loss: Tensor | None = None  # of the micro-batches since the last step

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach the monitor; after a resume it goes on where the checkpoint was."""
        self._step, self._loss = trainer.global_step, None
        self._start(
            pl_module,
            trainer.default_root_dir,
            dtype=_dtype_of(str(trainer.precision)),
            step=trainer.global_step,
            optimizers=trainer.optimizers,
            writes=trainer.is_global_zero,
        )

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take down what the step's micro-batches showed, once the optimiser has stepped."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None:
            # each comes divided by the number of micro-batches: their sum is the mean
            self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()
        if trainer.global_step == self._step:
            return
        # reading a loss waits for the device: only where the step is sampled anyway
        read = self.monitor.is_sampling and self._loss is not None
        self._observe(trainer.global_step, **({"train_loss": float(self._loss)} if read else {}))
        self._step, self._loss = trainer.global_step, None

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Take down what a validation during training logged."""
        self._evaluated(trainer.global_step, trainer.callback_metrics)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Detach the monitor and close the file."""
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Detach the monitor also where training was interrupted."""
        self._close()


def _dtype_of(precision: str) -> torch.dtype | None:
    if "bf16" in precision:
        return torch.bfloat16
    return torch.float16 if "16" in precision else None
