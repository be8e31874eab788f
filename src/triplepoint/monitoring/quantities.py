"""What each number of a grokking monitor is, in what unit and after whom: copied into the manifest of a run."""

from __future__ import annotations

from typing import Literal

Loss = Literal["mse", "cross_entropy"]

PAPER = "arXiv 2511.01938"
OURS = "triplepoint"

UNITS: dict[Loss, str] = {"mse": "mse", "cross_entropy": "nats"}

_LOSSES: dict[Loss, str] = {
    "mse": "squared error, mean over samples and outputs",
    "cross_entropy": "cross-entropy, mean over samples",
}

_ROWS: dict[str, tuple[str, str, str]] = {
    "train_accuracy": (
        "share of the training samples whose largest output is the label's",
        "share",
        OURS,
    ),
    "val_accuracy": (
        "share of the held-out samples whose largest output is the label's",
        "share",
        OURS,
    ),
    "refit_train_accuracy": (
        "train_accuracy with the head replaced by the ridge optimum on the training features",
        "share",
        OURS,
    ),
    "refit_val_accuracy": (
        "val_accuracy with the head replaced by the ridge optimum on the TRAINING features, lam near 0",
        "share",
        OURS,
    ),
    "complexity": (
        "C = ||W1||_F ||W2*(W1)||_F, W2* the ridge optimum on the training features",
        "1",
        OURS,
    ),
    "head_distance": ("||W2 - W2*|| / ||W2*||", "1", OURS),
    "weight_norm_sq": ("squared norm of one trainable parameter", "1", PAPER),
    "norm_sq": ("V = ||theta||^2 over all trainable parameters", "1", PAPER),
    "slow_time": (
        "t = 2 lam * (flow time); lr * weight_decay * steps, nominal for AdamW",
        "1",
        PAPER,
    ),
    "unit_imbalance": (
        "mean over hidden units b of | ||W1_b||^2 - ||W2_b||^2 |; decays as e^(-2t) in the joint flow",
        "1",
        OURS,
    ),
    "zero_loss_share": (
        "share of the training samples whose cross-entropy is exactly 0 in the run's dtype",
        "share",
        "arXiv 2501.04697",
    ),
    "cosine_tangent": (
        "cosine of the update over a window and P_T(-theta) at its middle",
        "1",
        PAPER,
    ),
    "cosine_weights": (
        "cosine of the same update and -theta: what projecting has to beat",
        "1",
        OURS,
    ),
    "cosine_kink": (
        "cosine_tangent with each gate replaced by its mean over the window: sliding along ReLU kinks",
        "1",
        OURS,
    ),
    "speed_ratio": ("||update|| / (slow time of the window * ||P_T theta||)", "1", OURS),
    "tangent_share_update": ("||P_T update|| / ||update||", "1", PAPER),
    "tangent_share_gradient": (
        "||P_T grad L|| / ||grad L||, P_T at the point of the manifold near theta",
        "1",
        PAPER,
    ),
    "tau": (
        "||P_T theta||^2 / ||theta||^2: share of the norm that decay can still remove",
        "share",
        OURS,
    ),
    "validity": (
        "eps = lam / sigma_min(J)^2, lam beside the SUM of squares; trust the picture below 0.02",
        "1",
        OURS,
    ),
    "sigma_min": (
        "smallest singular value of J on the training set, from conjugate gradients, from above",
        "1",
        PAPER,
    ),
    "stuck_share": ("share of pre-activations whose gate flipped twice or more in the window", "share", OURS),
    "fourier_power": (
        "power of frequency k of the residues' embedding over that of all k >= 1",
        "share",
        PAPER,
    ),
    "fourier_norm_cv": (
        "coefficient of variation of the norms of Re F_k, Im F_k over all k",
        "1",
        PAPER,
    ),
    "fourier_cosine_mean": ("mean |cosine| between different Fourier features", "1", PAPER),
    "fourier_gini": ("Gini coefficient of the power over frequencies", "1", "arXiv 2301.05217"),
    "unit_concentration": (
        "share of a unit's power in its best frequency, mean over active units",
        "share",
        OURS,
    ),
    "effective_frequencies": ("1 / sum of squared power shares", "frequencies", OURS),
    "T_mem": (
        "first of three evaluations in a row with train_accuracy >= 0.99",
        "steps",
        OURS,
    ),
    "T_grok": (
        "first of three evaluations in a row with val_accuracy at or above the site's level",
        "steps",
        OURS,
    ),
}  # fmt: skip


def definitions(loss: Loss) -> dict[str, dict[str, str]]:
    """Return name -> definition, unit and source of everything that a grokking monitor records.

    Example:
        >>> definitions("mse")["val_loss"]["unit"], definitions("cross_entropy")["val_loss"]["unit"]
        ('mse', 'nats')
    """
    rows = {
        f"{name}_loss": (f"{_LOSSES[loss]}; {which} samples, eval mode", UNITS[loss], OURS)
        for name, which in (("train", "all training"), ("val", "held-out"))
    } | _ROWS
    return {n: {"definition": d, "unit": u, "source": s} for n, (d, u, s) in rows.items()}
