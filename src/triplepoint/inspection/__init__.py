"""Measuring a checkpoint or a model: spectra and ranks of its weights, and what data show of it."""

from triplepoint.inspection.activations import inspect_activations as inspect_activations
from triplepoint.inspection.definitions import DEFINITIONS as DEFINITIONS
from triplepoint.inspection.definitions import WEIGHT_METRICS as WEIGHT_METRICS
from triplepoint.inspection.measuring import inspect_checkpoint as inspect_checkpoint
from triplepoint.inspection.measuring import inspect_steps as inspect_steps
from triplepoint.inspection.measuring import inspect_weights as inspect_weights
from triplepoint.inspection.results import Change as Change
from triplepoint.inspection.results import Comparison as Comparison
from triplepoint.inspection.results import Density as Density
from triplepoint.inspection.results import Inspection as Inspection
from triplepoint.inspection.results import Layer as Layer
from triplepoint.inspection.results import Skipped as Skipped
from triplepoint.inspection.results import compare as compare
from triplepoint.inspection.stability import noise_stability as noise_stability

__all__ = [
    "DEFINITIONS",
    "WEIGHT_METRICS",
    "Change",
    "Comparison",
    "Density",
    "Inspection",
    "Layer",
    "Skipped",
    "compare",
    "inspect_activations",
    "inspect_checkpoint",
    "inspect_steps",
    "inspect_weights",
    "noise_stability",
]
