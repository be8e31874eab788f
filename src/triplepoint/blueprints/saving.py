"""Swapped models on disk: weights, the configuration they were built from, and what was swapped."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import nn

from triplepoint.blueprints._base import AS_IT_IS, Blueprint, Shape
from triplepoint.errors import ModelError, RunFolderError, TriplepointError
from triplepoint.runs import identity_of, read_json, write_json
from triplepoint.surgery import SwapReport, completed, rebuild, sidecar_of
from triplepoint.weights import load_into, load_tensors, save_tensors

SIDECAR = "triplepoint.json"
VERSION = 1
WEIGHTS = "model.safetensors"
CONFIG = "config.json"


def save(
    folder: str | Path, model: nn.Module, blueprint: Blueprint, report: SwapReport | None = None
) -> None:
    """Write a swapped model so that :func:`load` builds it again, alpha and all.

    ``model.safetensors`` holds the weights, tied ones once; ``triplepoint.json`` what the model was built from and what
    was swapped; a model of ``transformers`` gets its ``config.json`` too. The folder appears whole or not at all.

    Args:
        folder: New, or empty.
        model: Built by ``blueprint``, then swapped.
        blueprint: What built it.
        report: Of the swap, to be kept.

    Raises:
        RunFolderError: If there is something in the folder, or it cannot be written.
        ModelError: If an op of the model cannot be built by name.
    """  # fmt: skip
    folder = Path(os.path.realpath(folder))
    told = blueprint.told()
    swap = sidecar_of(model)
    beside = folder.parent / f".{folder.name}.part"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunFolderError(f"{folder} is not empty.\nChoose another folder with --out.")
        beside.mkdir(parents=True)
        save_tensors(beside / WEIGHTS, model.state_dict())
        if "config" in told:
            write_json(beside / CONFIG, told.pop("config"))
        write_json(beside / SIDECAR, {"version": VERSION, "model": told, "swap": swap, "report": report and dataclasses.asdict(report)})  # fmt: skip
        if folder.exists():
            folder.rmdir()
        beside.rename(folder)
    except RunFolderError:
        raise
    except OSError as error:
        raise RunFolderError(
            f"{folder} cannot be written: {error.strerror or error}.\nChoose another folder with --out."
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def load(folder: str | Path) -> nn.Module:
    """Build a swapped model that :func:`save` or ``triplepoint swap --out`` wrote, with its weights.

    ``from_pretrained`` would leave the ops' alphas out: it builds the model with its norms.

    Args:
        folder: With ``triplepoint.json`` and ``model.safetensors``.

    Returns:
        The model, in eval mode.

    Raises:
        RunFolderError: If the folder was not written by :func:`save`, or is no longer complete.
        ModelError: If its description is damaged, or what builds the model has changed.
        CheckpointError: If the weights are damaged or another model's.
    """
    from triplepoint.blueprints.naming import blueprint_of

    folder = Path(folder)
    if not (folder / SIDECAR).exists():
        raise RunFolderError(
            f"{folder} has no {SIDECAR}: it is no model that triplepoint swapped.\n"
            "Give the folder that `triplepoint swap --out` wrote."
        )
    return SavedBlueprint(str(folder.absolute()), blueprint_of).trained()


@dataclasses.dataclass(frozen=True)
class SavedBlueprint(Blueprint):
    """A folder that :func:`save` wrote."""

    name: str
    """The folder, absolute."""
    naming: Callable[[str], Blueprint]
    """Finds the blueprint of the model that was swapped."""

    @functools.cached_property
    def _sidecar(self) -> dict[str, Any]:
        found = read_json(Path(self.name) / SIDECAR)
        if found.get("version") != VERSION:
            raise ModelError(
                f"{Path(self.name) / SIDECAR} is of version {found.get('version')}, this is version {VERSION}.\n"
                "Read it with the version of triplepoint that wrote it, or swap the model again."
            )
        return found

    @functools.cached_property
    def base(self) -> Blueprint:
        """The model that was swapped."""
        with self._describing():
            told = self._sidecar["model"]
            if told["kind"] == "size":
                return self._of_size(told)
            name = self._file(CONFIG) if told["kind"] == "huggingface" else told["name"]
            return self.naming(str(name))

    @contextlib.contextmanager
    def _describing(self) -> Iterator[None]:
        """Turn what a damaged description brings about into a word about it."""
        try:
            yield
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, TriplepointError):
                raise
            why = f"{type(error).__name__}: {error}".split("\n")[0]
            raise ModelError(
                f"{Path(self.name) / SIDECAR} is damaged: {why}.\n"
                "Restore it, or swap the model again."
            ) from error

    def _file(self, name: str) -> Path:
        path = Path(self.name) / name
        if not path.is_file():
            raise RunFolderError(
                f"{self.name} has no {name}, which a swapped model consists of.\n"
                "Restore it, or swap the model again."
            )
        return path

    def _of_size(self, told: dict[str, Any]) -> Blueprint:
        own = Shape(**{k: tuple(v) if isinstance(v, list) else v for k, v in told["shape"].items()})
        return dataclasses.replace(self.naming(told["name"]), changes=told["changes"], own=own)

    @property
    def identity(self) -> str:
        """Hash of everything in the sidecar."""
        return identity_of(self._sidecar)

    @property
    def context(self) -> int:
        """The base model's."""
        return self.base.context

    def build(self, shape: Shape = AS_IT_IS) -> nn.Module:
        """Return the swapped model, newly initialised."""
        model = self.base.build(shape)
        with self._describing():
            rebuild(model, self._sidecar["swap"])
        return model

    def trained(self) -> nn.Module:
        """Return it with its weights, in the dtypes that they were saved in."""
        file, model = self._file(WEIGHTS), self.build()
        state = completed(load_tensors(file, remedy="Restore it, or swap the model again."), model)
        for name, own in model.state_dict(keep_vars=True).items():
            if name in state:
                own.data = own.data.to(state[name].dtype)
        load_into(model, state, source=file)
        return model.eval()

    def told(self) -> dict[str, Any]:
        """Return the base model's description."""
        return self.base.told()
