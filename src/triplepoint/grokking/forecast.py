r"""When will this run grok? An interval from every law that may be asked, or why none may.

Symbols, as in ``triplepoint.grokking.laws``:

- ``T_grok``: steps from the start of training until the validation accuracy is 0.99
- ``APE = |predicted - observed| / observed``: absolute percentage error, as a fraction
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from triplepoint.errors import StatisticsError
from triplepoint.grokking.isolated_laws import ISOLATED_LAWS
from triplepoint.grokking.laws import GrokFacts, Interval, Law
from triplepoint.grokking.published_laws import PUBLISHED_LAWS

LAWS: dict[str, Law] = {law.name: law for law in (*PUBLISHED_LAWS, *ISOLATED_LAWS)}
"""Name -> law. A new law adds its line in ``published_laws`` or ``isolated_laws``."""

X = TypeVar("X")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What the laws say about one run."""

    intervals: Mapping[str, Interval]
    """Name of each law that applies -> earliest and latest ``T_grok``."""
    excluded: Mapping[str, str]
    """Name of each other law -> why it gives no interval."""

    @property
    def interval(self) -> Interval | None:
        """Smallest interval that holds all of them; None where no law applies.

        The hull and not the overlap: laws that disagree make a forecast less certain, not more.
        """
        if not self.intervals:
            return None
        lows, highs = zip(*self.intervals.values(), strict=True)
        return min(lows), max(highs)

    @property
    def words(self) -> str:
        """The forecast in a sentence, with its laws."""
        if self.interval is None:
            return "Outside the scope of every law."
        low, high = self.interval
        named = ", ".join(f"{name} ({LAWS[name].source})" for name in self.intervals)
        return f"Expected to grok between steps {low:.0f} and {high:.0f}, by: {named}."


def forecast_grokking(facts: GrokFacts) -> Forecast:
    r"""Ask every law when a run will grok.

    A law answers if each fact of its scope is known and lies in the range where the law was measured, and
    each fact that its formula reads is known. Its interval is made from its published spread, as ``Law.spread``
    says: the range of a rate, the interval of an exponent, a mean absolute percentage error, or the range
    observed over a few runs. So the intervals have no common level, and several of them no level at all.
    It is NOT a prediction that the run groks: see ``triplepoint.grokking.will_it_grok``.

    Args:
        facts: What is known about the run.

    Returns:
        The intervals of ``T_grok`` in steps from the start of training, and for every other law the reason.

    Example:
        An isolated flow that groks in 2500 steps of 1e-3 is started from twice the scale, ln 2 later:

        >>> facts = GrokFacts(
        ...     loss="mse", optimizer="isolated", model="two_layer", activation="relu",
        ...     lr=1e-3, weight_decay=1.0, init_scale=2.0, reference_T_grok=2500,
        ... )
        >>> [round(T) for T in forecast_grokking(facts).interval]
        [3180, 3220]
    """
    answers = {name: law.ask(facts) for name, law in LAWS.items()}
    return Forecast(
        intervals={name: said for name, said in answers.items() if not isinstance(said, str)},
        excluded={name: said for name, said in answers.items() if isinstance(said, str)},
    )


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class LeaveOneOut:
    """How a law did on runs that it had not seen, beside the simplest forecast."""

    law_errors: tuple[float, ...]
    """APE of the law on each run, fitted to the others."""
    median_errors: tuple[float, ...]
    """APE of "always the median of the others"."""

    @property
    def law_mape(self) -> float:
        """Mean of ``law_errors``."""
        return statistics.fmean(self.law_errors)

    @property
    def median_mape(self) -> float:
        """Mean of ``median_errors``; a law with a larger one has not helped."""
        return statistics.fmean(self.median_errors)


def leave_one_out(
    runs: Sequence[tuple[X, float]],
    law: Callable[[Sequence[tuple[X, float]]], Callable[[X], float]],
) -> LeaveOneOut:
    r"""Score a law on each run after fitting it to the others, against "always the median".

    .. math:: \mathrm{APE}_i = |f_{-i}(x_i) - T_i| / T_i, \qquad \mathrm{median:}\quad
        |\mathrm{median}_{j \ne i} T_j - T_i| / T_i

    The unit of ``T`` decides how strong the median is: slow time already takes out learning rate and decay,
    steps do not. Censored runs have no ``T`` and cannot be scored here.

    Args:
        runs: What the law reads of a run, and the observed time, in any one unit.
        law: Fits itself to some runs and returns its forecast of another one: ``median_ratio``, say.

    Returns:
        Both lists of errors, in the order of the runs.

    Raises:
        StatisticsError: If there are fewer than two runs, or a time is not positive.

    Example:
        >>> scored = leave_one_out([(1.0, 2.0), (2.0, 4.0), (4.0, 8.0)], median_ratio)
        >>> scored.law_errors, scored.median_errors  # the medians are 6, 5 and 3
        ((0.0, 0.0, 0.0), (2.0, 0.25, 0.625))
    """
    if len(runs) < 2 or not all(T > 0 for _, T in runs):
        raise StatisticsError(
            f"Leave-one-out needs at least two runs with positive times, got {len(runs)}: "
            f"{[T for _, T in runs]}.\nLeave out the runs that did not grok, and say how many they were."
        )
    law_errors, median_errors = [], []
    for i, (x, T) in enumerate(runs):
        others = [*runs[:i], *runs[i + 1 :]]
        law_errors.append(abs(law(others)(x) - T) / T)
        median_errors.append(abs(statistics.median(t for _, t in others) - T) / T)
    return LeaveOneOut(law_errors=tuple(law_errors), median_errors=tuple(median_errors))


def median_ratio(runs: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Fit ``T = a x`` with ``a`` the median of ``T / x``: the fast-forward lag, where ``x`` is ``t99_iso``.

    Example:
        >>> median_ratio([(1.0, 2.0), (1.0, 3.0), (1.0, 9.0)])(10.0)
        30.0
    """
    a = statistics.median(T / x for x, T in runs)
    return lambda x: a * x
