"""Quantities of values per seed: means, deviations, relative deltas, paired tests.

Each takes the values (name -> seed -> value) and the names that it is of, and returns one number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

Values = Mapping[str, Mapping[str, float]]

COLLAPSED = 7.0
"""Nats per token: above it a run on 118M tokens sits at the level of token frequencies, 7.44; the others end below 5.5."""


def mean(values: Values, name: str) -> float:
    """Return the mean over seeds."""
    return statistics.fmean(values[name].values())


def mean_pct(values: Values, name: str) -> float:
    """Return the mean of shares over seeds, per cent."""
    return 100 * mean(values, name)


def mean_two_seeds(values: Values, name: str) -> float:
    """Return the mean over seeds 1337 and 42, for comparison with runs that have no third."""
    return statistics.fmean([values[name][seed] for seed in ("1337", "42")])


def of_seed(values: Values, name: str, seed: str) -> float:
    """Return the value of one seed."""
    return values[name][seed]


def sd_population(values: Values, name: str) -> float:
    """Return the standard deviation over ``n``."""
    return statistics.pstdev(values[name].values())


def sd_sample(values: Values, name: str) -> float:
    """Return the standard deviation over ``n - 1``."""
    return statistics.stdev(values[name].values())


def delta_pct(values: Values, baseline: str, candidate: str) -> float:
    """Return the relative difference of the means, per cent; negative where the candidate is lower."""
    return 100 * (mean(values, candidate) / mean(values, baseline) - 1)


def ratio(values: Values, below: str, above: str) -> float:
    """Return the mean of ``above`` over that of ``below``."""
    return mean(values, above) / mean(values, below)


def points(values: Values, baseline: str, candidate: str) -> float:
    """Return the difference of two shares in percentage points."""
    return 100 * (mean(values, candidate) - mean(values, baseline))


def gap(values: Values, train: str, validation: str) -> float:
    """Return validation minus training loss, mean over seeds."""
    return mean(values, validation) - mean(values, train)


def gap_of_seed(values: Values, train: str, validation: str, seed: str) -> float:
    """Return validation minus training loss of one seed."""
    return values[validation][seed] - values[train][seed]


def gap_reduction_pct(values: Values, *names: str) -> float:
    """Return by how much the second pair's gap is smaller than the first's, per cent."""
    return 100 * (1 - gap(values, *names[2:]) / gap(values, *names[:2]))


def paired_t(values: Values, baseline: str, candidate: str) -> float:
    """Return Student's t of the differences, candidate minus baseline, seed by seed."""
    d = [values[candidate][seed] - x for seed, x in values[baseline].items()]
    return statistics.fmean(d) / (statistics.stdev(d) / math.sqrt(len(d)))


def paired_p(values: Values, baseline: str, candidate: str) -> float:
    """Return the two-sided p-value of :func:`paired_t` with three seeds.

    With two degrees of freedom P(|T| > t) = 1 - t / sqrt(t^2 + 2), here without the cancellation.
    """
    if len(values[baseline]) != 3:
        raise ValueError(f"paired_p is for 3 seeds, {baseline} has {len(values[baseline])}")
    t = abs(paired_t(values, baseline, candidate))
    s = math.sqrt(t * t + 2)
    return 2 / (s * (s + t))


def bonferroni_p(values: Values, baseline: str, candidate: str) -> float:
    """Return the p-value times the paper's 19 tests, at most 1."""
    return min(1.0, 19 * paired_p(values, baseline, candidate))


def collapsed(values: Values, name: str) -> float:
    """Count the seeds that ended above :data:`COLLAPSED`."""
    return sum(loss > COLLAPSED for loss in values[name].values())


ABLATIONS = ("rope", "gqa", "swiglu")


def _ablations(values: Values) -> tuple[list[float], list[float]]:
    saturations, losses = [], []
    for part in ABLATIONS:
        own = values[f"Llama_S1/118M dyt saturation, no {part}"]
        saturations += own.values()
        losses += [values[f"Llama_S1/118M dyt loss, no {part}"][seed] for seed in own]
    return saturations, losses


def ablation_r(values: Values) -> float:
    """Return Pearson's r of saturation and loss over the nine ablation runs."""
    return statistics.correlation(*_ablations(values))


def ablation_collapsed(values: Values) -> float:
    """Count the ablation runs that collapsed."""
    return sum(loss > COLLAPSED for loss in _ablations(values)[1])


def ablation_hits(values: Values) -> float:
    """Count the collapsed ablation runs of a saturation of 0.5 and more."""
    pairs = zip(*_ablations(values), strict=True)
    return sum(loss > COLLAPSED and saturation >= 0.5 for saturation, loss in pairs)


def ablation_false_alarms(values: Values) -> float:
    """Count the other ablation runs of a saturation of 0.5 and more."""
    pairs = zip(*_ablations(values), strict=True)
    return sum(loss <= COLLAPSED and saturation >= 0.5 for saturation, loss in pairs)
