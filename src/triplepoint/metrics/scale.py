"""Sizes of activations and logits."""

from __future__ import annotations

import torch
from torch import Tensor

from triplepoint.metrics._base import Metric, State


def _sum_of_squares(x: Tensor) -> State:
    x = x.detach().float()
    return {
        "squares": x.square().sum(dtype=torch.float64),
        "n": torch.tensor(x.numel(), device=x.device),
    }


def _root_mean_square(state: State) -> float:
    return float((state["squares"] / state["n"].clamp(min=1)).sqrt())


def _centred_squares(logits: Tensor) -> State:
    logits = logits.detach().float()
    return _sum_of_squares(logits - logits.mean(dim=-1, keepdim=True))


INPUT_RMS = Metric(
    name="input_rms",
    update=_sum_of_squares,
    compute=lambda state: {"input_rms": _root_mean_square(state)},
    reads="activation",
    unit="1",
    definition="root mean square of what enters a norm site, over tokens and features; not centred",
    source="Karl Pearson's root mean square; screening list of triplepoint",
)
"""Root mean square of a site's input. Not its standard deviation: the mean is not taken off."""

LOGIT_SCALE = Metric(
    name="logit_scale",
    update=_centred_squares,
    compute=lambda state: {"logit_scale": _root_mean_square(state)},
    reads="logits",
    unit="nats",
    definition="root mean square of the logits after taking off each position's mean over the vocabulary",
    source="standard deviation over the vocabulary; a softmax does not see the mean",
)
"""Spread of the logits over the vocabulary: 0 for a uniform prediction; grows without a final norm."""
