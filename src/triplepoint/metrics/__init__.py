"""What regime a tensor is in. One file per topic."""

from triplepoint.metrics._base import Metric as Metric
from triplepoint.metrics._base import State as State
from triplepoint.metrics._base import add_states as add_states
from triplepoint.metrics.activation_rank import ACTIVATION_RANK
from triplepoint.metrics.activation_rank import activation_rank as activation_rank
from triplepoint.metrics.heavy_tail import tail_report as tail_report
from triplepoint.metrics.power_law import PowerLawFit as PowerLawFit
from triplepoint.metrics.power_law import fit_power_law as fit_power_law
from triplepoint.metrics.predictions import PREDICTION_KL
from triplepoint.metrics.rank import effective_rank as effective_rank
from triplepoint.metrics.rank import effective_rank_sq as effective_rank_sq
from triplepoint.metrics.rank import participation_ratio as participation_ratio
from triplepoint.metrics.rank import stable_rank as stable_rank
from triplepoint.metrics.saturation import DEFINITIONS as SATURATION_DEFINITIONS
from triplepoint.metrics.saturation import THRESHOLDS as THRESHOLDS
from triplepoint.metrics.saturation import saturation as saturation
from triplepoint.metrics.scale import INPUT_RMS, LOGIT_SCALE
from triplepoint.metrics.spectrum import spectrum_of as spectrum_of

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (saturation(), INPUT_RMS, LOGIT_SCALE, PREDICTION_KL, ACTIVATION_RANK)
}
"""Name -> metric. A new metric adds its entry here."""

__all__ = [
    "METRICS",
    "SATURATION_DEFINITIONS",
    "THRESHOLDS",
    "Metric",
    "PowerLawFit",
    "State",
    "activation_rank",
    "add_states",
    "effective_rank",
    "effective_rank_sq",
    "fit_power_law",
    "participation_ratio",
    "saturation",
    "spectrum_of",
    "stable_rank",
    "tail_report",
]
