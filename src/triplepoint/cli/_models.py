"""What MODEL means on the command line."""

from __future__ import annotations

import os
from pathlib import Path


def size_of(model: str) -> str:
    """Return the named size that MODEL is, or that a run folder was trained with.

    A run folder gives its architecture, newly initialised; its trained weights are not used.

    Raises:
        UnknownNameError: If there is no such size.
        RunFolderError: If the folder is no run folder.
        ModelError: If the run's model is not a named size.
    """
    from triplepoint.errors import ModelError
    from triplepoint.models import config_of
    from triplepoint.runs import read_json

    if not os.path.isdir(model):  # False for a name too long for a path
        config_of(model)
        return model
    folder = Path(model)
    manifest = read_json(folder / "manifest.json")
    facts, asked = manifest.get("model"), manifest.get("asked")
    name = facts.get("name") if isinstance(facts, dict) else None
    if name is None and isinstance(asked, dict):
        name = asked.get("size")  # a run that has not got as far as its model
    if not isinstance(name, str) or name == "module":
        raise ModelError(
            f"{folder} was made from a model of its own, not from a named size.\n"
            "Screen it from Python, with triplepoint.screen(build, batches, ...)."
        )
    config_of(name)
    return name
