"""Does the prediction depend on the input at all?"""

from __future__ import annotations

import torch
from torch import Tensor

from triplepoint.metrics._base import Metric, State


def _update(logits: Tensor) -> State:
    # sums in float64: the result is a small difference of two entropies
    p = logits.detach().float().flatten(0, -2).softmax(dim=-1)
    return {
        "p": p.sum(dim=0, dtype=torch.float64),
        "entropy": torch.special.entr(p).sum(dtype=torch.float64),
        "n": torch.tensor(p.shape[0], device=p.device),
    }


def _compute(state: State) -> dict[str, float]:
    n = state["n"].clamp(min=1)
    mean_prediction = torch.special.entr(state["p"] / n).sum()
    return {"prediction_kl": float((mean_prediction - state["entropy"] / n).clamp(min=0))}


PREDICTION_KL = Metric(
    name="prediction_kl",
    update=_update,
    compute=_compute,
    reads="logits",
    unit="nats",
    definition=(
        "mean over positions of KL(prediction || position-averaged prediction) on the validation windows; "
        "0 where the network ignores its input"
    ),
    source="the mutual information of position and token: entropy of the mean less mean entropy",
)
r"""How far predictions differ between positions.

.. math:: \frac{1}{n}\sum_i \mathrm{KL}(p_i \,\|\, \bar p) = H(\bar p) - \frac{1}{n}\sum_i H(p_i)

On the unigram plateau it is 0.0000 nats. Not the divergence from the training text's unigram distribution.
"""
