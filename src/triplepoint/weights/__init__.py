"""Weights on disk: lazy and safe reading of anybody's, tied-aware writing of our own."""

from triplepoint.weights.checkpoint import Checkpoint as Checkpoint
from triplepoint.weights.checkpoint import TensorEntry as TensorEntry
from triplepoint.weights.opening import open_checkpoint as open_checkpoint
from triplepoint.weights.opening import steps_of as steps_of
from triplepoint.weights.saving import load_into as load_into
from triplepoint.weights.saving import load_tensors as load_tensors
from triplepoint.weights.saving import save_tensors as save_tensors

__all__ = [
    "Checkpoint",
    "TensorEntry",
    "load_into",
    "load_tensors",
    "open_checkpoint",
    "save_tensors",
    "steps_of",
]
