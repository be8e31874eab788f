"""Writing and reading our own weights: safetensors, tied tensors written once, damaged files named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from triplepoint.errors import CheckpointError
from triplepoint.runs import atomic_path

TIE = "tie:"
"""Prefix of the metadata keys that name a tied tensor."""


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as one safetensors file, atomically; a tensor under several names is written once.

    The other names go into the file's metadata as ``tie:NAME -> FIRST``, and :func:`load_tensors` brings
    them back. A tensor that shares only part of another's memory is written in full.
    """
    first: dict[tuple, str] = {}
    kept: dict[str, Tensor] = {}
    ties: dict[str, str] = {}
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        if tensor.numel() and key in first:
            ties[TIE + name] = first[key]
        else:
            first[key] = name
            kept[name] = tensor.detach().contiguous().cpu().clone()
    with atomic_path(path) as beside:
        try:
            # an empty table of ties makes a file without tensors unreadable
            save_file(kept, beside, metadata=ties or None)
        except SafetensorError as error:
            # safetensors wraps the operating system's error in a type of its own
            raise OSError(str(error)) from error


def load_tensors(path: Path, *, remedy: str | None = None) -> dict[str, Tensor]:
    """Read what :func:`save_tensors` wrote, onto the CPU; tied names give the same tensor.

    Args:
        path: The file.
        remedy: What to try where it is damaged; that of a run's checkpoint by default.

    Raises:
        CheckpointError: If the file is missing, cut or not safetensors.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            ties = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        remedy = remedy or (
            f"It is cut or damaged: delete the folder {path.parent} and run the same command again; it resumes "
            "from the checkpoint before."
        )
        raise CheckpointError(
            f"{path} cannot be read as safetensors ({error}).\n{remedy}"
        ) from error
    return tensors | {
        name.removeprefix(TIE): tensors[first]
        for name, first in ties.items()
        if name.startswith(TIE)
    }


def load_into(module: torch.nn.Module, tensors: Mapping[str, Tensor], *, source: Path) -> None:
    """Copy tensors into a module's parameters and buffers; every name must fit.

    Raises:
        CheckpointError: If names or shapes differ: the checkpoint is another model's.
    """
    try:
        module.load_state_dict(dict(tensors), strict=True)
    except RuntimeError as error:
        problem = str(error).splitlines()[-1].strip()
        raise CheckpointError(
            f"{source} does not fit the model: {problem}\n"
            "It was written by another model; choose another folder with --out."
        ) from error
