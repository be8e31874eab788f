r"""Laws about the time of grokking from the literature, with their constants as published.

Symbols: as in ``triplepoint.grokking.laws``, and

- ``gamma``: rate at which an optimiser contracts V; ``kappa``: that rate over ``2 eta lam``
- ``V*``, ``w_c``, ``Wc``: threshold of V, and of a norm; ``rho``: a norm over ``Wc``
"""

from __future__ import annotations

import itertools
import math

from triplepoint.grokking.laws import Among, Between, GrokFacts, Interval, Law

DIFFERENT_EXPERIMENTS = "A logarithm of a norm that moves freely and an exponential of a norm that is held are different experiments: neither law refutes the other."
NORM_OR_LOGIT_SCALE = "Under cross-entropy the same group first named the weight norm and then the logit scale as the cause (2606.13753, 2606.18465)."
V_IS_NO_GAUGE = "Under squared error V depends on how a homogeneous net shares its scale between layers; C does not."
LAYERNORM_IS_INERT = "With LayerNorm the total norm is inert: the outputs do not depend on the scale of what is normalised."
KAPPA_IS_NOT_CONSTANT = "In the isolated flow under squared error dt / d ln V(0) is exactly 1/2, kappa = 1, while kappa < 1 on average: a constant kappa cannot be right there."

KAPPA = {
    "mlp": 0.206,
    "1 layer": 0.242,
    "2 layers, layernorm False": 0.370,
    "2 layers, layernorm True": 0.175,
}
"""Kind of net -> kappa of the first-passage law; of one layer the paper does not tell LayerNorm apart."""
V_STAR_CELL = {"p": 97, "lr": 1e-3, "weight_decay": 1.0, "model": "transformer", "layers": 1}
"""The cell in which V* = 2501 was calibrated."""
WC_BY_DECAY = {0.3: 63.0, 1.0: 55.0, 3.0: 49.0}
"""Weight decay -> Wc at p = 59."""


def _after_memorising(facts: GrokFacts, threshold: float, rate: Interval) -> Interval | str:
    """Return T_mem + ln(V_mem / threshold) / rate for the fastest and the slowest rate."""
    if not facts.V_mem > threshold:
        return f"V_mem = {facts.V_mem:g} is not above its threshold {threshold:g}: no delay is left to explain"
    log = math.log(facts.V_mem / threshold)
    return facts.T_mem + log / rate[1], facts.T_mem + log / rate[0]


def _norm_separation(facts: GrokFacts) -> Interval | str:
    low, high = NORM_SEPARATION.constants["gamma / (eta lam)"]
    pace = facts.slow_time_per_step
    return _after_memorising(facts, facts.V_post, (low * pace, high * pace))


def _first_passage(facts: GrokFacts) -> Interval | str:
    kind = f"{facts.layers} layers, layernorm {facts.layernorm}"
    if facts.model == "mlp":
        kind = "mlp"
    elif facts.layers == 1:
        kind = "1 layer"
    if kind not in KAPPA:
        return f"kappa was measured for {'; '.join(KAPPA)}, and not for {kind}"
    kappa = KAPPA[kind]
    threshold = facts.V_star
    if threshold is None:
        if any(getattr(facts, name) != value for name, value in V_STAR_CELL.items()):
            return "not given: V_star (known only for one layer, p = 97, lr 1e-3, weight decay 1)"
        threshold = FIRST_PASSAGE.constants["V*"]
    ended = _after_memorising(facts, threshold, (2 * kappa * facts.slow_time_per_step,) * 2)
    if isinstance(ended, str):
        return ended
    delay, off = ended[0] - facts.T_mem, FIRST_PASSAGE.constants["MAPE, across tasks"]
    # |predicted - observed| = off * observed, solved for what is observed
    return facts.T_mem + delay / (1 + off), facts.T_mem + delay / (1 - off)


def _held_norm(facts: GrokFacts) -> Interval | str:
    decay = math.log(facts.weight_decay)
    knots = [(math.log(wd), Wc) for wd, Wc in WC_BY_DECAY.items()]
    # between neighbouring decays Wc is taken to be linear in ln lam
    (x0, y0), (x1, y1) = next(pair for pair in itertools.pairwise(knots) if decay <= pair[1][0])
    at_59 = y0 + (y1 - y0) * (decay - x0) / (x1 - x0)
    times = []
    for alpha, power in itertools.product(
        HELD_NORM.constants["alpha"], HELD_NORM.constants["power of p in Wc"]
    ):
        Wc = at_59 * (facts.p / 59) ** power
        for norm in (facts.held_norm, facts.reference_norm):
            if norm / Wc not in RHO:
                return f"rho = {norm:g} / {Wc:.1f} = {norm / Wc:.2f}, it holds for {RHO}"
        growth = math.exp(alpha * (facts.held_norm - facts.reference_norm) / Wc)
        times.append(facts.reference_T_grok * growth)
    return min(times), max(times)


def _by_decay(facts: GrokFacts) -> Interval:
    ratio = facts.weight_decay / facts.reference_weight_decay
    times = [
        facts.reference_T_grok * ratio**-power for power in REGIME_THRESHOLD.constants["power"]
    ]
    return min(times), max(times)


RHO = Between(0.85, 1.15)
"""Norms over Wc at which the law of the held norm was measured."""

RIEMANNIAN_DRIFT = Law(
    name="riemannian drift",
    formula="plateau until eps / lam, fall until M / lam in flow time",
    scope={"loss": Among(("mse",)), "optimizer": Among(("sgd", "isolated"))},
    constants={},
    source="arXiv 2511.01938; proved in arXiv 2505.20172",
    weak_points=(
        "It fixes no constant.",
        "Sparse and low-rank end points are singular: left open.",
    ),
    needs=(),
    spread="none: the law is about how the time scales",
    estimate=lambda facts: (
        "it says that the time is proportional to 1 / (lr weight_decay), and no constant"
    ),
)
NORM_SEPARATION = Law(
    name="norm separation",
    formula="T_grok - T_mem = Theta(ln(V_mem / V_post) / gamma), gamma >= eta lam under AdamW",
    scope={
        "optimizer": Among(("adamw",)),
        "model": Among(("transformer",)),
        "layers": Among((1,)),
        "task": Among(("modular",)),
        "fraction": Among((0.5,)),
        "weight_decay": Between(0.1, 1.0),
    },
    constants={"gamma / (eta lam)": (1.0, 1.41), "T eta lam": 9.58},
    source="arXiv 2603.13331",
    weak_points=(
        "Theta hides a constant, taken to be 1 here.",
        "V_post has to be known from an earlier run.",
        "With weight decay up to 0.01 and from 5 none grokked; sparse parity has no delay.",
        DIFFERENT_EXPERIMENTS,
        V_IS_NO_GAUGE,
        LAYERNORM_IS_INERT,
    ),
    needs=("lr", "T_mem", "V_mem", "V_post"),
    spread="gamma from its proved lower end, 1, to what was measured, 1.41, in units of eta lam",
    estimate=_norm_separation,
)
FIRST_PASSAGE = Law(
    name="first passage",
    formula="T_grok - T_mem = ln(V_mem / V*) / (2 kappa eta lam)",
    scope={
        "loss": Among(("cross_entropy",)),
        "optimizer": Among(("adamw",)),
        "model": Among(("mlp", "transformer")),
        "task": Among(("modular",)),
    },
    constants={f"kappa, {kind}": value for kind, value in KAPPA.items()}
    | {
        "V*": 2501.0,
        "MAPE, held out": 0.177,
        "MAPE, MLPs": 0.180,
        "MAPE, across tasks": 0.233,
        "fitted power of eta": 1.02,
        "fitted power of lam": 1.26,
    },
    source="arXiv 2605.18845",
    weak_points=(
        "kappa is fitted, and differs twofold between architectures.",
        "Reaching V* is necessary and not sufficient: an angle of 48 to 53 degrees has to be reached too.",
        "The fitted power of lam is 1.26, the formula has 1.",
        KAPPA_IS_NOT_CONSTANT,
        DIFFERENT_EXPERIMENTS,
        V_IS_NO_GAUGE,
        LAYERNORM_IS_INERT,
    ),
    needs=("lr", "weight_decay", "T_mem", "V_mem"),
    spread="the largest published mean absolute percentage error, 23.3 %: about as many runs miss it as meet it",
    estimate=_first_passage,
)
HELD_NORM = Law(
    name="held norm, cross-entropy",
    formula="T_grok proportional to exp(alpha rho), rho = ||theta|| / Wc",
    scope={
        "loss": Among(("cross_entropy",)),
        "optimizer": Among(("adamw",)),
        "model": Among(("mlp",)),
        "layernorm": Among((False,)),
        "hidden": Among((256,)),
        "activation": Among(("gelu",)),
        "task": Among(("modular",)),
        "weight_decay": Between(0.3, 3.0),
        "p": Between(43, 113),
    },
    constants={"alpha": (7.16, 7.69), "power of p in Wc": (0.38, 0.44), "Wc at p = 59": 54.49},
    source="arXiv 2606.13753",
    weak_points=(
        "The norm is held by hand: it says nothing about a norm that moves.",
        "A transformer has another alpha; sparse parity does not follow it.",
        "The slopes of 2606.18465 fall as p^-0.73, Wc grows as p^0.41 only.",
        DIFFERENT_EXPERIMENTS,
        NORM_OR_LOGIT_SCALE,
        LAYERNORM_IS_INERT,
    ),
    needs=("held_norm", "reference_norm", "reference_T_grok"),
    spread="the corners of the 95 % interval of alpha and of the range of powers of p",
    estimate=_held_norm,
)
LOGIT_SCALE = Law(
    name="logit scale",
    formula="T_grok a function of the effective logit scale (R^2 = 0.97)",
    scope={"loss": Among(("cross_entropy",)), "task": Among(("modular",))},
    constants={
        "d ln T / d norm, p = 43": 0.173,
        "d ln T / d norm, p = 59": 0.140,
        "d ln T / d norm, p = 67": 0.126,
        "d ln T / d norm, p = 97": 0.094,
        "d ln T / d norm, p = 113": 0.087,
        "share of the delay recovered at held norm": (0.83, 0.89),
    },
    source="arXiv 2606.18465",
    weak_points=(
        "Under squared error the logit scale is pinned near 1, and half of the effect stays unexplained.",
        NORM_OR_LOGIT_SCALE,
    ),
    needs=(),
    spread="none: no spread of the slopes is published",
    estimate=lambda facts: "the function is given by its fit alone, without an interval",
)
REGIME_THRESHOLD = Law(
    name="regime threshold",
    formula="T_grok proportional to lam^-0.757 above lam_c = -ln(1 - 0.99) / (eta kappa T_max)",
    scope={
        "model": Among(("transformer",)),
        "weight_decay": Between(0.1, 2.0),
        "reference_weight_decay": Between(0.1, 2.0),
    },
    constants={"power": (0.725, 0.799), "lam_c": (0.0109, 0.0200)},
    source="arXiv 2605.20441",
    weak_points=(
        "A calibrated consistency check: kappa is fitted on the runs it is shown on.",
        "Its own end points, 1090 epochs at 0.1 and 83 at 2, give a power of 0.86.",
        "At weight decay 10 the runs collapse.",
    ),
    needs=("reference_T_grok",),
    spread="the 95 % interval of the power of lam (210 runs); all else equal to the reference run",
    estimate=_by_decay,
)
OMNIGROK = Law(
    name="initial norm",
    formula="T_grok = ln(w_0 / w_c) / gamma",
    scope={"optimizer": Among(("sgd",)), "layernorm": Among((False,))},
    constants={},
    source="arXiv 2210.01117",
    weak_points=("Rescaling once is washed out under AdamW.", DIFFERENT_EXPERIMENTS, V_IS_NO_GAUGE),
    needs=(),
    spread="none: w_c is read off each landscape",
    estimate=lambda facts: "no value or spread of the threshold w_c is published",
)

PUBLISHED_LAWS = (
    RIEMANNIAN_DRIFT,
    NORM_SEPARATION,
    FIRST_PASSAGE,
    HELD_NORM,
    LOGIT_SCALE,
    REGIME_THRESHOLD,
    OMNIGROK,
)
