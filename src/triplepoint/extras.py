"""Optional dependencies: imported where they are used, named in the error where they are missing."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from triplepoint.errors import MissingExtraError


def require(module: str, *, extra: str) -> ModuleType:
    """Import ``module``, which the extra ``extra`` installs.

    Args:
        module: Dotted name of the module to import.
        extra: Name of the extra in ``pip install 'triplepoint[extra]'``.

    Raises:
        MissingExtraError: If it is not installed.

    Example:
        >>> require("json", extra="hf").__name__
        'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"This needs the package '{module}', which is not installed ({error}).\n"
            f"Install it with: pip install 'triplepoint[{extra}]'"
        ) from error


def optional(module: str) -> ModuleType | None:
    """Import ``module`` if its package is installed, for what works without it as well, only slower.

    Example:
        >>> optional("json").__name__, optional("no_such_package.part")
        ('json', None)
    """
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        return None
    return importlib.import_module(module)
