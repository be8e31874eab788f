"""triplepoint: which phase is a training run in, before you pay for the whole of it.

Public names are resolved when they are first used, so that ``triplepoint --help`` does not pay for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from triplepoint.blueprints import load as load
    from triplepoint.data import load_corpus as load_corpus
    from triplepoint.data import load_images as load_images
    from triplepoint.inspection import inspect_checkpoint as inspect_checkpoint
    from triplepoint.invariance import CheckReport as CheckReport
    from triplepoint.invariance import check as check
    from triplepoint.invariance import check_causality as check_causality
    from triplepoint.metrics import effective_rank as effective_rank
    from triplepoint.metrics import fit_power_law as fit_power_law
    from triplepoint.metrics import stable_rank as stable_rank
    from triplepoint.monitoring import GrokMonitor as GrokMonitor
    from triplepoint.monitoring import Monitor as Monitor
    from triplepoint.ops import OPS as OPS
    from triplepoint.report import write_report as write_report
    from triplepoint.screening import Arm as Arm
    from triplepoint.screening import Plan as Plan
    from triplepoint.screening import Verdict as Verdict
    from triplepoint.screening import screen as screen
    from triplepoint.surgery import SwapReport as SwapReport
    from triplepoint.surgery import roles as roles
    from triplepoint.surgery import swap_norms as swap_norms
    from triplepoint.surgery import unswap_norms as unswap_norms

_PUBLIC = {
    "Arm": "triplepoint.screening",
    "CheckReport": "triplepoint.invariance",
    "GrokMonitor": "triplepoint.monitoring",
    "Monitor": "triplepoint.monitoring",
    "OPS": "triplepoint.ops",
    "Plan": "triplepoint.screening",
    "SwapReport": "triplepoint.surgery",
    "Verdict": "triplepoint.screening",
    "check": "triplepoint.invariance",
    "check_causality": "triplepoint.invariance",
    "effective_rank": "triplepoint.metrics",
    "fit_power_law": "triplepoint.metrics",
    "inspect_checkpoint": "triplepoint.inspection",
    "load": "triplepoint.blueprints",
    "load_corpus": "triplepoint.data",
    "load_images": "triplepoint.data",
    "roles": "triplepoint.surgery",
    "screen": "triplepoint.screening",
    "stable_rank": "triplepoint.metrics",
    "swap_norms": "triplepoint.surgery",
    "unswap_norms": "triplepoint.surgery",
    "write_report": "triplepoint.report",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "grokking":
        return importlib.import_module("triplepoint.grokking")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'triplepoint' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
