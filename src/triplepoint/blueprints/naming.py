"""From what was typed to a blueprint."""

from __future__ import annotations

import os
from pathlib import Path

from triplepoint.blueprints._base import Blueprint
from triplepoint.blueprints.callables import CallableBlueprint
from triplepoint.blueprints.huggingface import HuggingFaceBlueprint
from triplepoint.blueprints.saving import SIDECAR, SavedBlueprint
from triplepoint.blueprints.sizes import SizeBlueprint
from triplepoint.blueprints.trained import RunBlueprint
from triplepoint.errors import ModelError, UnknownNameError, unknown_name
from triplepoint.models import SIZES

FORMS = "a named size, a Hugging Face folder or config.json, module:callable, or a run folder"


def blueprint_of(model: str | Path) -> Blueprint:
    """Return the blueprint of MODEL.

    MODEL is a named size, a Hugging Face folder or config, ``module:callable``, or a folder that ``triplepoint swap``
    or a run has written.

    Args:
        model: What was typed. Nothing is built or imported yet, and nothing is downloaded.

    Raises:
        UnknownNameError: If it is none of these; it suggests the nearest size.
        ModelError: If the file or folder holds no model.

    Example:
        >>> blueprint_of("gpt2-0.4m").context
        128
    """
    name = str(model)
    if name in SIZES:
        return SizeBlueprint(name=name)
    if os.path.isdir(name):  # False for a name too long for a path
        return _of_folder(Path(name).absolute())
    if os.path.isfile(name):
        if name.endswith(".json"):
            return HuggingFaceBlueprint(os.path.abspath(name))
        raise ModelError(
            f"{name} is a file, and nothing in it says of which model its weights are.\nMODEL is {FORMS}."
        )
    if ":" in name and not os.path.splitdrive(name)[0]:
        return CallableBlueprint(name)
    error = unknown_name("model", name, SIZES)
    if os.sep in name:
        raise ModelError(f"There is no folder {name}.\nMODEL is {FORMS}; nothing is downloaded.")
    raise UnknownNameError(f"{error}\nMODEL is {FORMS}.")


def _of_folder(folder: Path) -> Blueprint:
    if (folder / SIDECAR).exists():
        return SavedBlueprint(str(folder), blueprint_of)
    if (folder / "manifest.json").exists():
        return RunBlueprint(str(folder), blueprint_of)
    if (folder / "config.json").exists():
        return HuggingFaceBlueprint(str(folder))
    raise ModelError(
        f"{folder} holds no model: neither config.json, nor {SIDECAR}, nor a run's manifest.json.\nMODEL is {FORMS}."
    )
