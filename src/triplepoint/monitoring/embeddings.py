"""Where a model keeps one vector per residue, and its Fourier features.

Symbols:
    p       number of residues: classes of the task
    E       embedding [p, dim]
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from triplepoint.errors import MetricInputError, ModelError
from triplepoint.grokking.representation import describe_embedding
from triplepoint.monitoring.networks import Samples, TwoLayers

Embedding = Callable[[], Tensor]
"""Returns E as it is now."""


def find_embedding(
    model: nn.Module, samples: Samples, *, layers: TwoLayers | None, named: str | None
) -> tuple[Embedding | None, str | None]:
    """Return the embedding of the residues, or None and why there is none.

    Without a name it is the first layer of a two-layer net on pairs, coded e_a + e_b or [e_a, e_b] (then that of a).

    Args:
        model: The model.
        samples: The training set; its labels say how many residues there are.
        layers: The two layers, if there are just two.
        named: Path of an ``nn.Embedding``, an ``nn.Linear`` on one-hot inputs, or a matrix with a row per token.

    Raises:
        ModelError: If the named module has no row for each residue.
    """
    classes = samples.Y.shape[1] if samples.X.is_floating_point() else int(samples.labels.max()) + 1
    if named is not None:
        found = _matrix(model, named)
        if found().ndim != 2 or len(found()) < classes:
            raise ModelError(
                f"'{named}' has shape {list(found().shape)}, with no row for each of {classes} residues.\n"
                "Name an embedding whose first rows are the residues."
            )
    elif layers is not None and _codes_pairs(samples.X, classes):
        found = lambda: layers.W1  # noqa: E731
    else:
        return None, "no first layer on coded pairs: name the embedding's path to have them"
    if classes % 2 == 0 or classes < 3:
        return None, f"{classes} residues: frequencies pair up only for an odd number"
    return lambda: found()[:classes], None


def _matrix(model: nn.Module, path: str) -> Embedding:
    parameters, modules = dict(model.named_parameters()), dict(model.named_modules())
    if path in parameters:
        return lambda: parameters[path].detach()
    module = modules.get(path)
    if isinstance(module, nn.Linear):
        return lambda: module.weight.detach().T
    if isinstance(module, nn.Embedding):
        return lambda: module.weight.detach()
    raise ModelError(
        f"{type(model).__name__} has no embedding '{path}'.\n"
        "Name an nn.Embedding, an nn.Linear or a parameter, as in named_modules()."
    )


def _codes_pairs(X: Tensor, classes: int) -> bool:
    """Whether every row has two ones (or one two) among as many columns as classes, or one in each half."""
    if bool((X.sum(1) != 2).any()) or not bool(((X == 0) | (X == 1) | (X == 2)).all()):
        return False
    ordered = X.shape[1] == 2 * classes and bool((X[:, :classes].sum(1) == 1).all())
    return ordered or X.shape[1] == classes


def fourier_rows(E: Tensor) -> list[tuple[str, str | None, float]]:
    """Return (metric, site, value) of an embedding; nothing where all its rows are equal, or it is not finite."""
    try:
        found = describe_embedding(E)
    except MetricInputError:
        return []
    shares = (found.power / found.power.sum()).tolist()
    return [
        *(("fourier_power", f"k={k}", share) for k, share in enumerate(shares, 1)),
        ("fourier_norm_cv", None, found.norm_cv),
        ("fourier_cosine_mean", None, found.cosine_mean),
        ("fourier_gini", None, found.gini),
        ("unit_concentration", None, found.unit_concentration),
        ("effective_frequencies", None, found.effective_frequencies),
    ]
