"""Rules for "replace the norm or keep it" read from the paper, with what each was worth there.

A rule says True (replace), False (keep) or None (cannot say). Thresholds that the paper does not name
are fitted to its 12 cells; so is each number of a rule's record, when it is asked for.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from triplepoint.errors import StatisticsError
from triplepoint.published._cells import Cell, load_cells
from triplepoint.statistics import (
    HeldOut,
    auc,
    balanced_accuracy,
    best_threshold,
    leave_one_group_out,
    permutation_p,
    wilson,
)

PAPER = "arXiv 2604.23434"
PUBLISHED_SATURATION = 0.43
"""The paper's cut: the rounded midpoint 0.4295 between two overlapping classes of an older table."""
PUBLISHED_TOKENS = 10e6
"""Unique tokens; the amount of data up to which most of the paper's cells favour DyT."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a rule may look at, of a planned or finished training; None where unknown."""

    tokens_per_parameter: float | None = None
    """Unique training tokens per parameter, positional embeddings not counted, tied ones once."""
    unique_tokens: float | None = None
    """Distinct training tokens."""
    epochs: float | None = None
    """Planned passes over them: tokens to be processed / unique tokens."""
    saturation_2: float | None = None
    """Fraction of ``|alpha x| > 2`` over all sites of the candidate, 0 to 1. The paper's is from the
    END of training; an early one is another number."""
    train_val_gap: float | None = None
    """Validation minus training loss of the baseline, nats/token. The paper's is from the last step;
    one measured earlier is smaller in a run that overfits later."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A yes-or-no answer from :class:`Facts`."""

    name: str
    says: Callable[[Facts], bool | None]
    """True = replace the norm, False = keep it, None = the fact it needs is unknown."""
    definition: str
    """The rule and its threshold in words, as a report prints it."""
    scope: str
    """Where it comes from and what it was not tested on."""
    source: str
    score: Callable[[Facts], float | None] | None = None
    """What is compared with the threshold, larger = more for replacing; None for a constant rule."""
    in_sample: bool = True
    """Whether rule or threshold was chosen by looking at the cells of its record."""
    note: str = ""
    """What its record cannot show."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class RuleRecord:
    """How often a rule was right on the paper's cells; None where it cannot be computed."""

    n: int
    """Cells whose facts the rule needs are known. One cell is one trial, whatever its seeds."""
    correct: int
    """Cells where the rule says what happened at the fixed endpoint."""
    wilson_low: float
    """Lower end of the 95 % Wilson interval of ``correct / n``, which takes cells as independent."""
    wilson_high: float
    auc: float | None
    """Of the score, whatever the threshold; None for a constant rule or one class only."""
    permutation_p: float | None
    """One-sided, of that AUC."""
    loso_correct: int | None
    """As ``correct``, the threshold refitted without the scale of the cell (leave one scale out)."""
    loso_n: int | None
    loso_wilson_low: float | None
    loso_wilson_high: float | None
    loso_balanced_accuracy: float | None
    loso_thresholds: dict[str, float]
    """Held-out scale -> refitted threshold, in the unit of the rule's score."""
    in_sample: bool
    note: str

    def sentence(self) -> str:
        """Return the record in plain words, as ``verdict.json`` prints it."""
        if self.n == 0:
            return f"no record: {self.note or 'no cell has the facts it needs'}"
        where = " in-sample" if self.in_sample else ""
        share = _per_cent(self.wilson_low, self.wilson_high)
        words = f"{self.correct} of {self.n} cells{where} ({share})"
        if self.loso_correct is None:
            return f"{words}, no scale held out: {self.note or 'cells of one scale only'}"
        share = _per_cent(self.loso_wilson_low, self.loso_wilson_high)
        return f"{words}, {self.loso_correct} of {self.loso_n} with the scale held out ({share})"


def _per_cent(low: float, high: float) -> str:
    return f"{100 * low:.0f}-{100 * high:.0f} %"


def facts_of(cell: Cell) -> Facts:
    """Return what a rule may know of a cell of the paper: means over its seeds.

    Example:
        >>> facts_of(load_cells("calibration")[1]).unique_tokens
        10000000.0
    """
    return Facts(
        tokens_per_parameter=cell.tokens_per_parameter,
        unique_tokens=float(cell.unique_tokens),
        epochs=cell.epochs,
        saturation_2=cell.mean("saturation_2"),
        train_val_gap=cell.mean("baseline_gap"),
    )


@functools.cache
def published_rules() -> tuple[Rule, ...]:
    """Return the rules, thresholds fitted to the paper's 12 calibration cells where it names none.

    They are baselines for a verdict to beat and to be read beside it, *not* advice: none of them was
    tested on cells it had not seen, and all their labels are fixed-endpoint differences, which the
    paper's author no longer takes for a benefit at low data.

    Returns:
        always keep, tokens per parameter, unique tokens, epochs, train/val gap, saturation.

    References:
        Verma (2026), `arXiv 2604.23434 <https://arxiv.org/abs/2604.23434>`_.

    Example:
        >>> [rule.name for rule in published_rules()][:3]
        ['always keep', 'tokens per parameter', 'unique tokens']
    """
    return (_always_keep(), _tokens_per_parameter(), _tokens(), _epochs(), _gap(), _saturation())


def _always_keep() -> Rule:
    return Rule(
        name="always keep",
        says=lambda facts: False,
        definition="Keep the norm, whatever the facts.",
        scope="The larger class of the paper's 12 GPT-2 cells; looks at nothing.",
        source="baseline",
        in_sample=False,
    )


def _tokens_per_parameter() -> Rule:
    def score(facts: Facts) -> float | None:
        return _minus_log10(facts.tokens_per_parameter)

    threshold = _fitted(score)
    return Rule(
        name="tokens per parameter",
        says=_above(score, threshold),
        definition=f"Replace iff unique tokens per parameter < {10**-threshold:.3g}.",
        scope="Threshold fitted to the 12 GPT-2 cells (64M to 1.3B parameters); no training needed.",
        source=f"{PAPER}, phase diagram; threshold computed here",
        score=score,
    )


def _tokens() -> Rule:
    def says(facts: Facts) -> bool | None:
        tokens = facts.unique_tokens
        return None if tokens is None or math.isnan(tokens) else tokens <= PUBLISHED_TOKENS

    return Rule(
        name="unique tokens",
        says=says,
        definition=f"Replace iff unique tokens <= {PUBLISHED_TOKENS:,.0f}.",
        scope="Read from the paper's 12 GPT-2 cells, which hold 1, 10, 50 or 118 million tokens.",
        source=f"{PAPER}, phase diagram; cut chosen here",
        score=lambda facts: _minus_log10(facts.unique_tokens),
    )


def _epochs() -> Rule:
    def score(facts: Facts) -> float | None:
        less = _minus_log10(facts.epochs)
        return None if less is None else -less

    threshold = _fitted(score)
    return Rule(
        name="epochs",
        says=_above(score, threshold),
        definition=f"Replace iff the plan passes over the data more than {10**threshold:.3g} times.",
        scope="Every cell of the paper processed the same number of tokens, so there it cannot be "
        "told from the rule on unique tokens.",
        source=f"{PAPER}, phase diagram; threshold computed here",
        score=score,
    )


def _gap() -> Rule:
    threshold = _fitted(lambda facts: facts.train_val_gap)
    return Rule(
        name="train/val gap",
        says=_above(lambda facts: facts.train_val_gap, threshold),
        definition="Replace iff the baseline's validation loss ends more than "
        f"{threshold:.2f} nats/token above its training loss.",
        scope="Midpoint of the only two cells with a gap, 64M parameters with 1M and 118M tokens.",
        source=f"{PAPER}, train/val gap at step 5000; threshold computed here",
        score=lambda facts: facts.train_val_gap,
        note="gaps were shipped for S1 only",
    )


def _saturation() -> Rule:
    return Rule(
        name="saturation",
        says=_above(lambda facts: facts.saturation_2, PUBLISHED_SATURATION),
        definition=f"Replace iff the fraction of |alpha x| > 2 is above {PUBLISHED_SATURATION}.",
        scope="Published for a 500-step probe, yet all its saturations are from the end of training.",
        source=f"{PAPER}, practitioner heuristic",
        score=lambda facts: facts.saturation_2,
        note="saturation at step 500 was never measured; two of three seeds of S1/10M and all of "
        "S2/10M were measured on other runs than the losses",
    )


def _minus_log10(value: float | None) -> float | None:
    # four decades between cells: midpoints belong on the logarithmic axis
    return None if value is None or value <= 0 else -math.log10(value)


def _above(
    score: Callable[[Facts], float | None], threshold: float
) -> Callable[[Facts], bool | None]:
    def says(facts: Facts) -> bool | None:
        value = score(facts)
        return None if value is None or math.isnan(value) else value > threshold

    return says


def _fitted(score: Callable[[Facts], float | None]) -> float:
    known = [(score(facts_of(c)), c.helps) for c in load_cells("calibration")]
    scores, labels = zip(*((s, y) for s, y in known if s is not None), strict=True)
    return best_threshold(scores, labels)[0]


def record(rule: Rule, *, cells: Iterable[Cell] | None = None) -> RuleRecord:
    """Compute what a rule was worth on the paper's cells.

    A cell's label is whether DyT was better at the *fixed endpoint*, not at the best checkpoint, so a
    right answer here is not yet a benefit. The held-out numbers refit the threshold without the scale,
    also for rules whose own threshold is fixed: that one was chosen with the scale in sight. A
    constant rule has nothing to refit and keeps its answers.

    Args:
        rule: One of :func:`published_rules`, or your own.
        cells: Cells to test on; the 12 calibration cells by default. Those without a label, or
            without the facts that the rule needs, do not count.

    Returns:
        The record; ``n`` is 0, with the interval (0, 1), where no cell can be judged.

    Example:
        Eight of the twelve cells were worse with DyT:

        >>> worth = record(published_rules()[0])
        >>> worth.correct, worth.n, worth.sentence()
        (8, 12, '8 of 12 cells (39-86 %), 8 of 12 with the scale held out (39-86 %)')
    """
    tested = load_cells("calibration") if cells is None else tuple(cells)
    judged = [c for c in tested if c.helps is not None and rule.says(facts_of(c)) is not None]
    labels = [c.helps for c in judged]
    answers = [rule.says(facts_of(c)) for c in judged]
    scores = None if rule.score is None else [rule.score(facts_of(c)) for c in judged]
    correct = sum(a == y for a, y in zip(answers, labels, strict=True))
    low, high = wilson(correct, len(judged)) if judged else (0.0, 1.0)
    both = scores is not None and len(set(labels)) == 2
    return RuleRecord(
        n=len(judged),
        correct=correct,
        wilson_low=low,
        wilson_high=high,
        auc=auc(scores, labels) if both else None,
        permutation_p=permutation_p(scores, labels) if both else None,
        **_held_out(scores, answers, labels, [c.scale for c in judged]),
        in_sample=rule.in_sample,
        note=rule.note,
    )


def _held_out(
    scores: Sequence[float] | None, answers: list[bool], labels: list[bool], scales: list[str]
) -> dict[str, object]:
    if len(set(scales)) < 2:
        names = ("correct", "n", "wilson_low", "wilson_high", "balanced_accuracy")
        return {"loso_thresholds": {}, **{f"loso_{name}": None for name in names}}
    if scores is None:
        fold = _unfitted(answers, labels)
    else:
        fold = leave_one_group_out(scores, labels, scales)
    low, high = wilson(fold.correct, fold.n)
    try:
        balanced = balanced_accuracy(fold.predictions, labels)
    except StatisticsError:
        balanced = None  # one class only: undefined
    return {
        "loso_correct": fold.correct,
        "loso_n": fold.n,
        "loso_wilson_low": low,
        "loso_wilson_high": high,
        "loso_balanced_accuracy": balanced,
        "loso_thresholds": fold.thresholds,
    }


def _unfitted(answers: list[bool], labels: list[bool]) -> HeldOut:
    right = np.array(answers) == np.array(labels)
    return HeldOut(
        thresholds={}, predictions=np.array(answers), correct=int(right.sum()), n=len(labels)
    )


@functools.cache
def _sentences() -> dict[str, str]:
    return {rule.name: record(rule).sentence() for rule in published_rules()}


def apply_rules(facts: Facts) -> list[dict[str, str]]:
    """Ask every published rule, as ``verdict.json`` lists them under ``rules``.

    The answers are *not* votes: all rules were read from the same 12 cells, and most look at the
    amount of data under another name.

    Args:
        facts: What is known of the plan; unknown facts are None.

    Returns:
        One ``{"name", "says", "record"}`` per rule; ``says`` is "replace", "keep" or "cannot say".

    Example:
        >>> rows = apply_rules(Facts(unique_tokens=1e6))
        >>> {row["name"]: row["says"] for row in rows[:3]}
        {'always keep': 'keep', 'tokens per parameter': 'cannot say', 'unique tokens': 'replace'}
    """
    words = {True: "replace", False: "keep", None: "cannot say"}
    return [
        {"name": rule.name, "says": words[rule.says(facts)], "record": _sentences()[rule.name]}
        for rule in published_rules()
    ]
