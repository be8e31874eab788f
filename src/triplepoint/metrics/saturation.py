"""How much of what enters a squashing function lies where the function is flat."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from triplepoint.metrics._base import Metric, State

THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
"""Sizes of the pre-activation counted: those of arXiv 2604.23434, whose headline is 2."""


def saturation(edges: Mapping[str, float] | None = None) -> Metric:
    r"""Return the metric that counts pre-activations beyond edges.

    .. math:: \mathrm{saturation@}t = \frac{1}{n} \sum_i [\,|z_i| > t\,]

    over all elements of all tensors given, in float32 whatever the model's dtype. Not the share of *outputs*
    near one, which depends on the op; and not a mean over sites unless every site has equally many elements.
    A non-finite pre-activation counts as beyond every edge.

    Args:
        edges: Suffix of the value's name -> edge, e.g. ``{"@2": 2.0}``; by default :data:`THRESHOLDS`. An
            op's own edges (``_slope``, ``_exact``) are added by :mod:`triplepoint.measurement`.

    Returns:
        A metric whose values are shares in [0, 1]; 0 for an empty tensor.

    References:
        arXiv 2604.23434, measured there in bfloat16 on 50 training windows at the end of training.

    Example:
        >>> metric = saturation({"@1": 1.0})
        >>> metric.compute(metric.update(torch.tensor([0.5, -1.5, 1.0, 2.0])))
        {'saturation@1': 0.5}
    """
    edges = {f"@{t:g}": t for t in THRESHOLDS} if edges is None else dict(edges)

    def update(z: Tensor) -> State:
        size = z.detach().float().abs()
        # "not <=" rather than ">", so that nan counts as beyond
        counts = {
            name: size.numel() - torch.count_nonzero(size <= edge) for name, edge in edges.items()
        }
        return {**counts, "n": torch.tensor(size.numel(), device=size.device)}

    def compute(state: State) -> dict[str, float]:
        n = max(int(state["n"]), 1)
        return {f"saturation{name}": int(state[name]) / n for name in edges}

    return Metric(
        name="saturation",
        update=update,
        compute=compute,
        reads="pre_activation",
        unit="share",
        definition="share of pre-activations z of the op with |z| > t, over all tokens and features of a site",
        source="arXiv 2604.23434",
    )


DEFINITIONS = {
    "saturation_slope": "share of pre-activations where the op's slope is under 7.07 % of its largest (tanh: |z| > 2)",
    "saturation_exact": "share of pre-activations whose output rounds to exactly 1 in the run's dtype: gradient 0",
}
"""The op's own edges, in words; ``saturation@t`` is defined by the metric itself."""
