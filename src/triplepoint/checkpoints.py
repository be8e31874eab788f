"""Checkpoints of a run: whole or not there at all, the newest two kept.

``checkpoints/step-000100/`` holds ``model.safetensors optimizer.safetensors state.safetensors
history.npz state.json``; ``checkpoints/best/model.safetensors`` the weights of the lowest validation loss.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from triplepoint.errors import CheckpointError, RunFolderError
from triplepoint.runs import read_arrays, read_json, write_arrays, write_json
from triplepoint.weights import load_tensors, save_tensors

KEEP = 2
"""How many are kept: the newest, and one before it in case the disk damaged the newest."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Everything that a run needs to go on as if nothing had happened."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    """``parameter|key`` -> AdamW's tensors."""
    rest: dict[str, Tensor]
    """Averaged weights and what the instrument has counted."""
    counts: dict
    """Plain numbers of the loop."""
    history: dict[str, np.ndarray]
    """Losses per window so far."""


def best_weights_path(run: Path) -> Path:
    """Return where the weights of the lowest validation loss lie, making the folder."""
    folder = run / "checkpoints" / "best"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "model.safetensors"


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, path: Path):
        self.path = path

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint with torch's random state, then remove the oldest beyond :data:`KEEP`.

        Raises:
            RunFolderError: If the disk is full or unwritable.
        """
        target = self._folder(snapshot.step)
        beside = target.with_name(f".{target.name}.part")
        shutil.rmtree(beside, ignore_errors=True)
        try:
            beside.mkdir(parents=True)
            save_tensors(beside / "model.safetensors", snapshot.model)
            save_tensors(beside / "optimizer.safetensors", snapshot.optimizer)
            save_tensors(beside / "state.safetensors", {**snapshot.rest, **_random_state()})
            write_arrays(beside / "history.npz", snapshot.history)
            write_json(beside / "state.json", {"step": snapshot.step, **snapshot.counts})
            shutil.rmtree(target, ignore_errors=True)
            beside.rename(target)
        except OSError as error:
            shutil.rmtree(beside, ignore_errors=True)
            if isinstance(error, RunFolderError):
                raise
            raise RunFolderError(
                f"{target} cannot be written: {error.strerror or error}.\n"
                "Free some space and run the same command again; it resumes from the checkpoint before."
            ) from error
        for old in self._steps()[:-KEEP]:
            shutil.rmtree(self._folder(old), ignore_errors=True)

    def latest(self) -> Snapshot | None:
        """Read the newest checkpoint and set torch's random state to its; None where there is none.

        Raises:
            CheckpointError: If it is damaged; the message names the folder to delete.
        """
        steps = self._steps()
        if not steps:
            return None
        folder = self._folder(steps[-1])
        try:
            counts = read_json(folder / "state.json")
            history = read_arrays(folder / "history.npz")
        except RunFolderError as error:
            raise CheckpointError(
                f"{folder} is damaged: {str(error).splitlines()[0]}\n"
                "Delete that folder and run the same command again; it resumes from the checkpoint before."
            ) from error
        rest = load_tensors(folder / "state.safetensors")
        snapshot = Snapshot(
            step=counts["step"],
            model=load_tensors(folder / "model.safetensors"),
            optimizer=load_tensors(folder / "optimizer.safetensors"),
            rest=rest,
            counts=counts,
            history=history,
        )
        _set_random_state(rest)
        return snapshot

    def _folder(self, step: int) -> Path:
        return self.path / f"step-{step:06d}"

    def _steps(self) -> list[int]:
        found = [re.fullmatch(r"step-(\d+)", p.name) for p in self.path.glob("step-*")]
        return sorted(int(m[1]) for m in found if m)


def _random_state() -> dict[str, Tensor]:
    state = {"random|cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["random|cuda"] = torch.cuda.get_rng_state()
    return state


def _set_random_state(tensors: dict[str, Tensor]) -> None:
    torch.set_rng_state(tensors["random|cpu"])
    if torch.cuda.is_available() and "random|cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random|cuda"])
