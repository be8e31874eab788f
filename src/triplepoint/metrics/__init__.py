"""What regime a tensor is in. One file per topic."""

from triplepoint.metrics._base import Metric as Metric
from triplepoint.metrics._base import State as State
from triplepoint.metrics._base import add_states as add_states
from triplepoint.metrics.predictions import PREDICTION_KL
from triplepoint.metrics.saturation import DEFINITIONS as SATURATION_DEFINITIONS
from triplepoint.metrics.saturation import THRESHOLDS as THRESHOLDS
from triplepoint.metrics.saturation import saturation as saturation
from triplepoint.metrics.scale import INPUT_RMS, LOGIT_SCALE

METRICS: dict[str, Metric] = {
    metric.name: metric for metric in (saturation(), INPUT_RMS, LOGIT_SCALE, PREDICTION_KL)
}
"""Name -> metric. A new metric adds its entry here."""

__all__ = [
    "METRICS",
    "SATURATION_DEFINITIONS",
    "THRESHOLDS",
    "Metric",
    "State",
    "add_states",
    "saturation",
]
