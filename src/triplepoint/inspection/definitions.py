"""What each number of an inspection is, in what unit and after whom: copied into a manifest."""

from __future__ import annotations

_HTSR = "Martin and Mahoney (2021), JMLR 22(165); Clauset, Shalizi and Newman (2009)"
_PAPER = "arXiv 2604.23434"

_WEIGHTS = {
    "tail_exponent": ("density exponent of the power law fitted to the largest eigenvalues of W^T W", "1", _HTSR),
    "tail_xmin": ("eigenvalue at which the fitted tail begins", "eigenvalue", _HTSR),
    "tail_ks": ("Kolmogorov-Smirnov distance of the fitted tail, empirical function at 0/n ... (n-1)/n", "1", _HTSR),
    "tail_size": ("eigenvalues in the fitted tail", "eigenvalues", _HTSR),
    "null_tail_exponent": ("exponent of the same number of largest eigenvalues of the same entries in random order", "1", "triplepoint"),
    "heavy_tailed": ("1 where the tail is longer and falls more slowly than that of the same entries in random order, else 0", "1", "triplepoint"),
    "weighted_tail_exponent": ("tail_exponent times log10 of the largest eigenvalue (alpha_weighted)", "1", _HTSR),
    "bulk_edge": ("upper edge of the Marchenko-Pastur law whose median is that of the eigenvalues", "eigenvalue", "Gavish and Donoho (2014)"),
    "spikes": ("eigenvalues above what the largest of pure noise exceeds in 1 % of draws; as its level is estimated, in 4 to 8 % of square matrices up to 64 x 64", "eigenvalues", "Johnstone (2001)"),
    "stable_rank": ("sum of the eigenvalues of W^T W over the largest", "dimensions", "Rudelson and Vershynin (2007)"),
    "effective_rank": ("exponential of the entropy of the singular values, normalised to sum 1", "dimensions", "Roy and Vetterli (2007)"),
    "effective_rank_sq": ("exponential of the entropy of the squared singular values, normalised to sum 1", "dimensions", "Roy and Vetterli (2007), squared"),
    "participation_ratio": ("square of the sum of the eigenvalues over the sum of their squares", "dimensions", "participation ratio of a covariance"),
    "log_norm": ("log10 of the squared Frobenius norm", "log10", _HTSR),
    "log_spectral_norm": ("log10 of the largest eigenvalue of W^T W", "log10", _HTSR),
    "non_finite_rows": ("rows with an entry that is inf or nan, left out of everything else", "rows", "triplepoint"),
}  # fmt: skip

_ACTIVATIONS = {
    "saturation": ("share of pre-activations beyond the size behind the @", "share", _PAPER),
    "saturation_slope": ("share of pre-activations where the op's slope is under 7.07 % of its largest", "share", _PAPER),
    "saturation_exact": ("share of pre-activations whose output rounds to exactly 1 in the model's dtype", "share", _PAPER),
    **{
        f"activation_rank{centred}{kind}": (f"{what} of what enters a site, over all tokens{told}", "dimensions", source)
        for centred, told in (("", ""), ("_centred", ", their mean taken off"))
        for kind, what, source in (
            ("", "effective rank (of sigma)", "Roy and Vetterli (2007)"),
            ("_sq", "effective rank (of sigma squared)", "Roy and Vetterli (2007), squared"),
            ("_participation", "participation ratio", "participation ratio of a covariance"),
            ("_stable", "stable rank", "Rudelson and Vershynin (2007)"),
        )
    },
    "dead_units": ("share of a linear layer's inputs that never exceed 1e-3 of their root mean square", "share", "triplepoint"),
    "noise_stability": ("change of the logits over the noise added to the embedding, its size behind the @", "1", _PAPER),
    "train_loss": ("mean loss on the training batches, in eval mode", "nats", _PAPER),
    "val_loss": ("mean loss on the held-out batches, in eval mode", "nats", _PAPER),
    "train_val_gap": ("val_loss minus train_loss", "nats", _PAPER),
}  # fmt: skip

WEIGHT_METRICS = tuple(_WEIGHTS)
"""Names that ``metrics=`` takes."""

DEFINITIONS: dict[str, dict[str, str]] = {
    name: {"definition": definition, "unit": unit, "source": source}
    for name, (definition, unit, source) in {**_WEIGHTS, **_ACTIVATIONS}.items()
}
"""Metric -> definition, unit and source; ``saturation@2`` and ``noise_stability@0.01`` without the ``@``."""
