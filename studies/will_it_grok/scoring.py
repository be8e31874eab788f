"""The rule that fixes the threshold, and what it is worth on settings that had no part in it.

Symbols: ``ratio``: median over the shuffles of C_real / C_shuffled; below the threshold means yes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from triplepoint.grokking import GrokOutlook
from triplepoint.statistics import wilson

DIGITS = 3
"""Decimals of the threshold: shuffles alone move a ratio by about 0.01."""


@dataclasses.dataclass(frozen=True)
class Scored:
    """One setting with its truth and its outlook."""

    name: str
    grokked_at: int | None
    """Steps to 0.99 held out, three evaluations in a row; None: not within the limit."""
    memorised_at: int | None
    end: float
    """Held-out accuracy at the last evaluation."""
    best: float
    held_out: int
    """Number of held-out samples."""
    steps: int
    """Steps that AdamW ran."""
    adamw_s: float
    ratio_s: float
    outlook: GrokOutlook

    @property
    def grokked(self) -> bool:
        """The truth."""
        return self.grokked_at is not None


def fit_threshold(settings: Sequence[tuple[float, bool]]) -> float:
    """Return the middle of the gap between the classes; the rule was fixed before the truths were.

    Where the classes overlap: the cut with the fewest errors, among equals the widest gap between
    neighbouring ratios, then the lower one. Cuts outside all ratios are not considered.

    Args:
        settings: Median ratio of each setting, and whether AdamW grokked.

    Returns:
        The threshold, rounded to three decimals.

    Example:
        >>> fit_threshold([(0.8, True), (0.9, True), (1.0, False), (1.1, False)])
        0.95
    """
    ratios = sorted(ratio for ratio, _ in settings)
    cuts = []
    for below, above in zip(ratios, ratios[1:], strict=False):
        cut = (below + above) / 2
        errors = sum((ratio < cut) != grokked for ratio, grokked in settings)
        cuts.append((errors, -round(above - below, DIGITS), cut))
    return round(min(cuts)[2], DIGITS)


def confusion(scored: Sequence[Scored]) -> dict[str, dict[str, int]]:
    """Count answers by truth: ``yes``, ``no``, ``undecided`` and, over all, the answer of the median."""
    table = {}
    for truth, grokked in (("grokked", True), ("did not", False)):
        of = [s.outlook for s in scored if s.grokked == grokked]
        table[truth] = {
            answer: sum(o.answer == answer for o in of) for answer in ("yes", "no", "undecided")
        }
        table[truth]["median below"] = sum(o.ratio < o.threshold for o in of)
        table[truth]["settings"] = len(of)
    return table


def rates(table: dict[str, dict[str, int]]) -> dict[str, tuple[int, int, float, float]]:
    """Return hits, cases and the 95 % Wilson interval of each rate that has cases."""
    yes, no = table["grokked"], table["did not"]
    decided = sum(row[answer] for row in (yes, no) for answer in ("yes", "no"))
    counts = {
        "right of the decided": (yes["yes"] + no["no"], decided),
        "grokked, among those told yes": (yes["yes"], yes["yes"] + no["yes"]),
        "did not, among those told no": (no["no"], yes["no"] + no["no"]),
        "told yes, among those that grokked": (yes["yes"], yes["settings"]),
        "told no, among those that did not": (no["no"], no["settings"]),
        "right by the median ratio": (
            yes["median below"] + no["settings"] - no["median below"],
            yes["settings"] + no["settings"],
        ),
        "always the commoner truth": (
            max(yes["settings"], no["settings"]),
            yes["settings"] + no["settings"],
        ),
    }
    return {name: (k, n, *wilson(k, n)) for name, (k, n) in counts.items() if n}
