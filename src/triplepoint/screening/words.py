"""Numbers -> sentences that a person reads first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triplepoint.evidence import LOOKS
from triplepoint.screening.clocks import BreakEven, Delay
from triplepoint.screening.forecasting import EndpointForecast, PlanForecast
from triplepoint.screening.verdicts import CandidateVerdict, Word

PLAIN_NAME = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}


def percent(fraction: float) -> str:
    """Return a signed percentage.

    Example:
        >>> percent(0.0312)
        '+3.1 %'
    """
    return f"{100 * fraction:+.1f} %"


def interval(ends: tuple[float, float]) -> str:
    """Return a 95 % interval in words.

    Example:
        >>> interval((-0.01, 0.02))
        '95 %: -1.0 to +2.0 %'
    """
    return f"95 %: {100 * ends[0]:+.1f} to {100 * ends[1]:+.1f} %"


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


def count(n: float | None) -> str:
    """Return a number of tokens or parameters, rounded.

    Example:
        >>> count(369312), count(9_400_000), count(None)
        ('369k', '9.4M', 'unknown')
    """
    if n is None:
        return "unknown"
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return f"{n:.3g}"


ENDPOINTS = {
    "best_checkpoint": "each arm's own best checkpoint",
    "fixed_step": "the fixed last step",
}


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
    summary.append(_basis(criterion, plan))
    summary.append(_progress(baseline, candidates))
    told = _telling(candidates, recommended)
    if told is not None:
        summary += [regime(name, told), record(told, criterion), instead(told)]
    nexts = [c for c in candidates if c.next is not None]
    if nexts:
        c = nexts[0]
        summary.append(
            f"Next informative look, for {c.arm}: {c.next.what}, about {seconds(c.next.cost_s)} here."
        )
    summary.append(
        f"Spent {seconds(cost['spent_s'])}; one planned run would take {seconds(cost['at_stake_s'])} on this machine."
    )
    return headline, [s for s in summary if s]


def _telling(candidates: Sequence[CandidateVerdict], recommended: str) -> CandidateVerdict | None:
    """Return the candidate that the reasons are told of: the one to train, else the first that has a forecast."""
    known = [c for c in candidates if c.forecast is not None]
    return next((c for c in known if c.arm == recommended), known[0] if known else None)


def _basis(criterion: str, plan: Mapping[str, Any]) -> str:
    what = "measured: the calibration is the whole plan" if plan["measured"] else (
        f"from {plan['calibration_steps']} of {plan['steps']} planned steps"
        + (f", {100 * plan['s1_share']:.2g} % of the plan's cumulative learning rate" if plan["s1_share"] else "")
    )  # fmt: skip
    return f"Judged at {ENDPOINTS[criterion]}, {what}."


def pace(speed_ratio: float) -> str:
    """Say how fast an arm learns.

    Example:
        >>> pace(0.5), pace(1.0), pace(1.5)
        ('learns 2.0 x slower', 'learns as fast', 'learns 1.5 x faster')
    """
    if speed_ratio < 0.995:
        return f"learns {1 / speed_ratio:.1f} x slower"
    return f"learns {speed_ratio:.1f} x faster" if speed_ratio > 1.005 else "learns as fast"


def _progress(baseline: Mapping[str, Any], candidates: Sequence[CandidateVerdict]) -> str:
    told = []
    for c in candidates:
        if c.speed_ratio is None or c.stalled or c.plateau_exit_step is None:
            continue
        told.append(
            f"{c.arm} {pace(c.speed_ratio)} than {baseline['arm']} on the cumulative-rate clock"
        )
    return "; ".join(told) + "." if told else ""


def why_no_forecast(plan: Mapping[str, Any]) -> str:
    """Say why a calibration cannot tell the end of this plan."""
    if plan["unique_tokens"] is None:
        return "the plan's unique tokens are unknown, so over-fitting cannot be ruled out"
    if plan["calibration_steps"] < LOOKS[0]:
        return f"a calibration of under {LOOKS[0]} steps says nothing about the end"
    return "the candidate has not come to a train loss that the baseline had: how late it is, is not known"


def forecast(end: EndpointForecast, found: PlanForecast) -> str:
    """Say what is expected, and how surely."""
    better = end.probability > 0.5
    sure = end.probability if better else 1 - end.probability
    side = "lower" if better else "higher"
    told = f"forecast {percent(end.delta_rel)} at the planned end ({interval(end.interval)})"
    if found.nearness.where == "outside":
        return told
    return f"{told}, {side} than the baseline with probability {100 * sure:.0f} %"


def outside(found: PlanForecast) -> str:
    """Say why the rule's record does not hold for a plan."""
    return f"outside what the rule was tested on ({found.nearness.why}), and the arms' own intervals meet"


def regime(baseline: str, candidate: CandidateVerdict) -> str:
    """Say why, in terms of the curves: who over-fits, and who is late."""
    facts = candidate.forecast
    if facts is None or candidate.speed_ratio is None:
        return ""
    onset = facts["onset_epoch"]
    over = (
        f"{baseline} over-fits from about epoch {onset:.2g}"
        if onset
        else f"{baseline} does not over-fit inside the plan"
    )
    return f"Why: {over}; {candidate.arm} {pace(candidate.speed_ratio)}."


def record(candidate: CandidateVerdict, criterion: str) -> str:
    """Say how often the rule was right, and what happened in the nearest cells."""
    facts = candidate.forecast
    if facts is None or not facts["record"]["answered"] or facts["where"] == "outside":
        return ""
    track = facts["record"]
    low, high = track["interval"]
    near = "; ".join(f"{n['cell']}: {percent(n['delta_rel'])}" for n in facts["nearest"][:2])
    return (
        f"Record at {ENDPOINTS[criterion]}: {track['right']} of {track['answered']} answers right "
        f"({100 * low:.0f} to {100 * high:.0f} %), the scale held out; nearest cells: {near}."
    )


def instead(candidate: CandidateVerdict) -> str:
    """Say what else was measured or is forecast in the same regime."""
    facts = candidate.forecast
    if facts is None:
        return ""
    told = [
        f"{a['what']} ({a['where']}): {percent(a['fixed_step'])} at the last step, {percent(a['best_checkpoint'])} at the best checkpoint"
        for a in facts["alternatives"]
        if abs(a["fixed_step"]) >= 0.005 or a["where"] != "forecast"
    ]
    return f"Alternatives: {'; '.join(told)}." if told else ""


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
