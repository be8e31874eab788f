"""Layers that can stand where a normalisation layer stood. One file per op or family."""

from triplepoint.ops._base import NormOp as NormOp
from triplepoint.ops.bhyt import BHyT as BHyT
from triplepoint.ops.derf import Derf as Derf
from triplepoint.ops.derf import DynamicErf as DynamicErf
from triplepoint.ops.dyt import DynamicTanh as DynamicTanh
from triplepoint.ops.dyt import DyT as DyT
from triplepoint.ops.facts import NormFacts as NormFacts
from triplepoint.ops.facts import facts_of as facts_of
from triplepoint.ops.hardtanh import HardTanh as HardTanh
from triplepoint.ops.hardtanh import HardTanhAlpha as HardTanhAlpha
from triplepoint.ops.normalisation import LayerNorm as LayerNorm
from triplepoint.ops.normalisation import RMSNorm as RMSNorm
from triplepoint.ops.pointwise import (
    ISRU,
    Arctan,
    CubSign,
    ExpRoot,
    ExpSign,
    LinearClip,
    LogQuadClip,
    LogSignClip,
    Power23Clip,
    RelSign,
    SaturLog,
    SaturSin,
    SmoothSign,
    SmoothSignClip,
)
from triplepoint.ops.presets import PRESETS as PRESETS
from triplepoint.ops.presets import Preset as Preset
from triplepoint.ops.presets import parse_op_name as parse_op_name
from triplepoint.ops.taper import Taper as Taper

OPS: dict[str, type[NormOp]] = {
    "layernorm": LayerNorm,
    "rmsnorm": RMSNorm,
    "dyt": DyT,
    "derf": Derf,
    "hardtanh": HardTanh,
    "hardtanh_alpha": HardTanhAlpha,
    "bhyt": BHyT,
    "taper": Taper,
    "arctan": Arctan,
    "isru": ISRU,
    "expsign": ExpSign,
    "satursin": SaturSin,
    "smoothsign": SmoothSign,
    "cubsign": CubSign,
    "exproot": ExpRoot,
    "saturlog": SaturLog,
    "linear_clip": LinearClip,
    "power23_clip": Power23Clip,
    "logsign_clip": LogSignClip,
    "logquad_clip": LogQuadClip,
    "smoothsign_clip": SmoothSignClip,
    "relsign": RelSign,
}
"""Name on the command line and in records -> op. A new op adds its line here and its presets."""
