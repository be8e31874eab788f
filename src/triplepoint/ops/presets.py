"""How an op is born: initial alpha by role and width, and what else the recipe changes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from triplepoint.errors import unknown_name

ALPHA_BY_WIDTH = {1024: (1.0, 1.0), 2048: (1.0, 0.5), 4096: (0.8, 0.2)}
"""Width -> (alpha before attention, alpha elsewhere) for language models, as DyT's authors tuned them.

The 4096 row is also in their LLaMA-7B script; the two smaller rows are quoted from the paper's table."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """A named way to put an op into a language model."""

    name: str
    alpha: Callable[[int, str], float] | None
    """(width, role) -> initial alpha; None where the op has no alpha."""
    embedding_scale: bool
    """Whether the input embeddings get one learnable scalar, born as sqrt(width)."""
    source: str


def alpha_by_role(width: int, role: str) -> float:
    """Return DyT's tuned initial alpha for language models, by the nearest tabled width in log scale.

    Below 1024 it is 1.0 at every role: the table says nothing about smaller models, so this continues its
    first row; it is unpublished for these sizes.

    Example:
        >>> alpha_by_role(4096, "pre_attn"), alpha_by_role(4096, "pre_mlp"), alpha_by_role(96, "final")
        (0.8, 0.2, 1.0)
    """
    if width < 1024:
        return 1.0
    nearest = min(ALPHA_BY_WIDTH, key=lambda w: abs(math.log(w / width)))
    attention, other = ALPHA_BY_WIDTH[nearest]
    return attention if role == "pre_attn" else other


def _two(width: int, role: str) -> float:
    return 2.0


def _one(width: int, role: str) -> float:
    return 1.0


_PAPER = "arXiv 2604.23434 as its code ran it: no embedding scale"
_SCALE = "learnable embedding scale born as sqrt(width)"
_TABLE = (
    f"arXiv 2503.10622: {_SCALE}, alpha by role and width from its table for width >= 1024; below, 1.0 at "
    "every role, which is unpublished for these sizes"
)

POINT_WISE = (
    "arctan", "isru", "expsign", "satursin", "smoothsign", "cubsign", "exproot", "saturlog", "linear_clip",
    "power23_clip", "logsign_clip", "logquad_clip", "smoothsign_clip", "relsign",
)  # fmt: skip
"""Names of the functions beside erf that the authors of arXiv 2512.10938 tried."""

PRESETS: dict[str, dict[str, Preset]] = {
    "dyt": {
        "paper": Preset(
            name="paper",
            alpha=_two,
            embedding_scale=False,
            source=f"{_PAPER}, alpha 2.0 everywhere",
        ),
        "recommended": Preset(
            name="recommended", alpha=alpha_by_role, embedding_scale=True, source=_TABLE
        ),
    },
    "derf": {
        "recommended": Preset(
            name="recommended",
            alpha=_one,
            embedding_scale=True,
            source=f"arXiv 2512.10938, its GPT-2 configuration class: {_SCALE}, alpha 1.0 at every role",
        ),
    },
    "hardtanh": {
        "paper": Preset(name="paper", alpha=None, embedding_scale=False, source=_PAPER),
        "recommended": Preset(
            name="recommended", alpha=None, embedding_scale=True, source=f"ours: {_SCALE}"
        ),
    },
    "hardtanh_alpha": {
        "recommended": Preset(
            name="recommended",
            alpha=alpha_by_role,
            embedding_scale=True,
            source=f"ours: {_SCALE}, DyT's alphas",
        ),
    },
    "bhyt": {
        "recommended": Preset(
            name="recommended",
            alpha=None,
            embedding_scale=False,
            source="arXiv 2601.09719, the exact form: lambda 2, kappa 10",
        ),
    },
    "taper": {
        "recommended": Preset(
            name="recommended",
            alpha=None,
            embedding_scale=False,
            source="arXiv 2602.10408; keep the final norm, or logits grow without bound",
        ),
    },
    "layernorm": {
        "recommended": Preset(
            name="recommended", alpha=None, embedding_scale=False, source="as the model has it"
        ),
    },
    "rmsnorm": {
        "recommended": Preset(
            name="recommended", alpha=None, embedding_scale=False, source="as the model has it"
        ),
    },
    **{
        name: {
            "recommended": Preset(
                name="recommended",
                alpha=_one,
                embedding_scale=True,
                source=f"ours: Derf's recipe for language models with another function; {_SCALE}, alpha 1.0",
            )
        }
        for name in POINT_WISE
    },
}
"""Op name -> preset name -> preset. ``recommended`` is what an op name alone means."""


def parse_op_name(name: str) -> tuple[str, Preset]:
    """Split ``op`` or ``op:preset`` into the op's name and its preset.

    Raises:
        UnknownNameError: If either does not exist; it suggests the nearest.

    Example:
        >>> op, preset = parse_op_name("dyt:paper")
        >>> op, preset.name, parse_op_name("dyt")[1].name
        ('dyt', 'paper', 'recommended')
    """
    op, colon, preset = name.strip().partition(":")
    if op not in PRESETS:
        raise unknown_name("op", op, PRESETS)
    preset = preset if colon else "recommended"
    if preset not in PRESETS[op]:
        raise unknown_name(f"{op} preset", preset, PRESETS[op])
    return op, PRESETS[op][preset]
