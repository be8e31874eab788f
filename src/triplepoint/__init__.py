"""triplepoint: which phase is a training run in, before you pay for the whole of it."""

from __future__ import annotations

__version__ = "0.1.0"
