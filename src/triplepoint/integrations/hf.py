"""The monitor in a Hugging Face ``Trainer``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from triplepoint.extras import require
from triplepoint.integrations.session import Watch


class MonitorCallback(Watch, require("transformers", extra="hf").TrainerCallback):
    """Watches a run of ``transformers.Trainer``; one observation per optimiser step.

    It writes records and phases to ``triplepoint.jsonl`` in the trainer's ``output_dir``, on the main process. The
    training loss is the one that the trainer logs: a mean over the steps since it last did. The trainer hides
    losses that are not finite; with ``logging_nan_inf_filter=False`` the phase can be ``diverged``.

    ``resume_from_checkpoint`` goes on with the same file: lines after the checkpoint are measured again.

    Args: those of :class:`triplepoint.integrations.session.Watch`.

    Example::

        callback = MonitorCallback(every=10)
        Trainer(model, args, train_dataset=data, callbacks=[callback]).train()
        print(callback.monitor.phase)
    """

    LOGGED = {"val_loss": "eval_loss", "val_accuracy": "eval_accuracy"}

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: nn.Module, optimizer: Any, **_: Any
    ) -> None:
        """Attach the monitor; after a resume it goes on where the checkpoint was."""
        self._start(
            model,
            args.output_dir,
            dtype=torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None,
            step=state.global_step,
            optimizers=[optimizer],
            writes=state.is_world_process_zero,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take down what the step's micro-batches showed."""
        self._observe(state.global_step)

    def on_log(
        self, args: Any, state: Any, control: Any, *, logs: Mapping[str, float], **_: Any
    ) -> None:
        """Take down the training loss, where it is logged."""
        if "loss" in logs:
            self._observe(state.global_step, train_loss=logs["loss"])

    def on_evaluate(
        self, args: Any, state: Any, control: Any, *, metrics: Mapping[str, float], **_: Any
    ) -> None:
        """Take down what an evaluation during training found."""
        self._evaluated(state.global_step, metrics)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Detach the monitor and close the file."""
        self._close()
