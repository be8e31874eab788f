"""A forecast -> the sentences that say how sure it is, why, on what record, and what else would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from triplepoint.screening.forecasting import EndpointForecast, PlanForecast
from triplepoint.screening.verdicts import CandidateVerdict

ENDPOINTS = {
    "best_checkpoint": "each arm's own best checkpoint",
    "fixed_step": "the fixed last step",
}

TOO_WIDE = 1.0
"""Of the baseline's loss: a 95 % interval wider than that is said to say nothing."""


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


def pace(speed_ratio: float) -> str:
    """Say how fast an arm learns on the clock of cumulative learning rate.

    Example:
        >>> pace(0.5), pace(1.0), pace(1.5)
        ('learns 2.0 x slower', 'learns as fast', 'learns 1.5 x faster')
    """
    if speed_ratio < 0.995:
        return f"learns {1 / speed_ratio:.1f} x slower"
    return f"learns {speed_ratio:.1f} x faster" if speed_ratio > 1.005 else "learns as fast"


def forecast(end: EndpointForecast, found: PlanForecast) -> str:
    """Say what is expected at the planned end, and how surely."""
    low, high = end.interval
    if high - low > TOO_WIDE:
        told = f"forecast too wide to be of use ({interval(end.interval)} at the planned end)"
    else:
        told = f"forecast {percent(end.delta_rel)} at the planned end ({interval(end.interval)})"
    if found.nearness.where == "outside" or end.probability == 0.5:
        return told
    side, sure = ("lower", end.probability) if end.probability > 0.5 else ("higher", 1 - end.probability)  # fmt: skip
    return f"{told}, {side} than the baseline with probability {100 * sure:.0f} %"


def miniature(facts: Mapping[str, Any]) -> str:
    """Say what the plan in miniature showed of a candidate."""
    sizes = facts["sizes"]
    if any(size["delta_rel"] is None for size in sizes):
        return "in miniature an arm diverged"
    each = ", ".join(f"{percent(s['delta_rel'])} at 1/{s['k']:.3g}" for s in sizes)
    told = f"the whole plan in miniature: {each}"
    if not facts["learned"]:
        return f"{told}, with an arm that has not left the unigram plateau: nothing to compare"
    if not facts["trusted"]:
        return f"{told}, which do not tell the sign at full size"
    told = f"{told}, the same sign on the line to full size"
    track = facts["record"]
    if not track["answered"]:
        return f"{told}; no plan of the benchmark gave this answer, so it decides nothing"
    low, high = track["interval"]
    right = f"such an answer was right in {track['right']} of {track['answered']} plans ({100 * low:.0f} to {100 * high:.0f} %)"
    return f"{told}; {right}, of GPT-2 style models up to 0.8M" + (
        "" if facts["decides"] else ", so it decides nothing here"
    )


def outside(found: PlanForecast) -> str:
    """Say why the rule's record does not hold for a plan."""
    return f"outside what the rule was tested on ({found.nearness.why}), and the arms' own intervals meet"


def tell(
    baseline: str, recommended: str, criterion: str, candidates: Sequence[CandidateVerdict]
) -> list[str]:
    """Return the sentences: why, the record, the neighbours, the alternatives.

    All but the first are of the candidate that is recommended, else of the first that has a forecast.
    """
    known = [c for c in candidates if c.forecast is not None]
    first = next((c for c in known if c.arm == recommended), known[0] if known else None)
    facts = first and first.forecast
    told = [_why(baseline, facts, candidates)]
    if facts:
        told += [_record(facts, criterion), _near(facts), _alternatives(facts)]
    return [sentence for sentence in told if sentence]


def _why(
    baseline: str, facts: Mapping[str, Any] | None, candidates: Sequence[CandidateVerdict]
) -> str:
    """Say who over-fits, and who is late."""
    told = []
    if facts:
        onset = facts["onset_epoch"]
        told.append(f"{baseline} over-fits from about epoch {onset:.2g}" if onset else f"{baseline} does not over-fit inside the plan")  # fmt: skip
    moving = [c for c in candidates if c.speed_ratio and not c.stalled and c.plateau_exit_step is not None]  # fmt: skip
    told += [f"{c.arm} {pace(c.speed_ratio)}" for c in moving]
    return f"Why: {'; '.join(told)} (on the clock of cumulative learning rate)." if moving else ""


def _record(facts: Mapping[str, Any], criterion: str) -> str:
    track = facts["record"]
    if not track["answered"] or facts["where"] == "outside":
        return ""
    low, high = track["interval"]
    return (
        f"Where the rule answered in plans of this family at {ENDPOINTS[criterion]}, the scale held out, {track['right']} of "
        f"{track['answered']} answers were right ({100 * low:.0f} to {100 * high:.0f} %)."
    )


def _near(facts: Mapping[str, Any]) -> str:
    if facts["where"] == "outside":
        return ""
    told = [
        f"{n['candidate']} in {n['size']} on {count(n['unique_tokens'])} tokens, {n['steps']} steps, lr {n['lr']:.2g}: {percent(n['delta_rel'])}"
        for n in facts["nearest"][:2]
    ]  # fmt: skip
    return f"Nearest finished runs: {'; '.join(told)}."


def _alternatives(facts: Mapping[str, Any]) -> str:
    stop, *measured = facts["alternatives"]
    told = []
    if stop["fixed_step"] <= -0.005:
        more = ", more than the candidate gains there" if stop["fixed_step"] < facts["endpoints"]["fixed_step"]["delta_rel"] < 0 else ""  # fmt: skip
        how = "measured" if facts["from_baseline_run"] else "forecast"
        told.append(f"stopping the baseline at its best checkpoint, {how} {percent(stop['fixed_step'])} against its last step{more}")  # fmt: skip
    told += [
        f"{a['what']}, measured in {a['size']} on {count(a['unique_tokens'])} tokens, {percent(a['fixed_step'])} at the last step and "
        f"{percent(a['best_checkpoint'])} at the best checkpoint"
        for a in measured
    ]  # fmt: skip
    return f"Instead: {'; '.join(told)}." if told else ""
