"""Numbers -> sentences that a person reads first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triplepoint.evidence import LOOKS
from triplepoint.screening import reasons
from triplepoint.screening.clocks import BreakEven, Delay
from triplepoint.screening.reasons import ENDPOINTS
from triplepoint.screening.verdicts import CandidateVerdict, Word

PLAIN_NAME = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}


def seconds(s: float | None) -> str:
    """Return a duration as people say it.

    Example:
        >>> seconds(42), seconds(600), seconds(9000), seconds(400000)
        ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    if s is None:
        return "an unknown time"
    for unit, size, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if s < most:
            return f"{s / size:.0f} {unit}" if unit != "h" else f"{s / size:.1f} {unit}"
    return f"{s / 86400:.1f} days"


def tell(
    *,
    word: Word,
    recommended: str,
    criterion: str,
    plan: Mapping[str, Any],
    baseline: Mapping[str, Any],
    candidates: Sequence[CandidateVerdict],
    cost: Mapping[str, Any],
) -> tuple[str, list[str]]:
    """Return the headline and the sentences under it."""
    name = PLAIN_NAME.get(baseline["arm"], baseline["arm"])
    headline = {
        "keep": f"Keep {name}.",
        "replace": f"Replace {name} by {recommended}.",
        "unsafe": f"Keep {name}: no candidate trains safely.",
        "undecided": f"Keep {name} unless a longer look says otherwise.",
    }[word]
    summary = [f"{c.arm}: {c.verdict}. {c.why[0].upper()}{c.why[1:]}." for c in candidates]
    summary += reasons.tell(name, recommended, criterion, candidates)
    summary.append(_basis(criterion, plan))
    nexts = [c for c in candidates if c.next is not None]
    if nexts:
        c = nexts[0]
        summary.append(
            f"Next informative look, for {c.arm}: {c.next.what}, about {seconds(c.next.cost_s)} here."
        )
    if cost["at_stake_s"]:
        summary.append(
            f"Spent {seconds(cost['spent_s'])}; one planned run would take {seconds(cost['at_stake_s'])} on this machine."
        )
    return headline, [s for s in summary if s]


def _basis(criterion: str, plan: Mapping[str, Any]) -> str:
    what = "measured: the calibration is the whole plan" if plan["measured"] else (
        f"from {plan['calibration_steps']} of {plan['steps']} planned steps"
        + (f", {100 * plan['s1_share']:.3g} % of the plan's cumulative learning rate" if plan["s1_share"] else "")
    )  # fmt: skip
    return f"Judged at {ENDPOINTS[criterion]}, {what}."


def why_no_forecast(plan: Mapping[str, Any]) -> str:
    """Say why a calibration cannot tell the end of this plan."""
    if plan["unique_tokens"] is None:
        return "the plan's unique tokens are unknown, so over-fitting cannot be ruled out"
    if plan["calibration_steps"] < LOOKS[0]:
        return f"a calibration of under {LOOKS[0]} steps says nothing about the end"
    return "the candidate has not come to a train loss that the baseline had: how late it is, is not known"


def would_change(
    word: Word, phase: str, found: Delay, even: BreakEven, plan: Mapping[str, Any]
) -> list[str]:
    """Say which findings would turn the answer."""
    said = []
    if phase in ("stalled", "fitting", "collapsed"):
        said.append("leaving the unigram plateau: until then its speed is not measurable")
    if even.speed_ratio is not None and found.speed_ratio is not None and word != "unsafe":
        said.append(
            f"a speed ratio above {even.speed_ratio:.2f} (now {found.speed_ratio:.2f}) would make it end level"
        )
    if even.offset is not None and found.offset is not None and word != "unsafe":
        said.append(
            f"an offset below {even.offset:+.3f} nats at equal train loss (now {found.offset:+.3f}) would make it end level"
        )
    if not plan["measured"] and plan["epochs"] and plan["epochs"] > 1:
        said.append(
            "the baseline's validation curve to the plan's end: over-fitting there favours the slower arm"
        )
    if phase == "diverged":
        said.append("a lower learning rate or a longer warm-up, if it then trains")
    return said
