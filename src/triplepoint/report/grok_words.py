"""What a grokking run comes to, in a word and a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from triplepoint.report import formats as as_
from triplepoint.report.grok_axes import Run, curve_of
from triplepoint.report.grok_tables import NUMBERS, Time, Times, number, slow_time
from triplepoint.report.series import Series, last


def headline(series: Series, times: Mapping[Run, Times]) -> tuple[str, str, str]:
    """Return (word, sentence, tone) of a run with steps, in plain words.

    Args:
        series: The records.
        times: Of each run.

    Returns:
        The tone is one of the page's: ``replace`` for generalising, ``undecided`` before, ``none`` if unknown.
    """
    known = {run: of_run for run, of_run in times.items() if of_run}
    if not known:
        return "Nothing measured yet", "The run has no accuracies to tell its phase by.", "none"
    if len(known) == 1:
        ((run, of_run),) = known.items()
        return _one(of_run, last(curve_of(series, run, "val_accuracy")))
    return _several(list(known.values()))


def _one(times: Times, end: tuple[int, float] | None) -> tuple[str, str, str]:
    memorised, groks = times.get("T_mem"), times.get("T_grok_0.99", Time())
    if memorised and memorised.step is None and groks.step is None:
        stop = memorised.censored_at
        within = f"within {as_.count(stop)} steps" if stop is not None else "so far"
        return "Still fitting", f"Training accuracy has not stayed at 99 % {within}.", "undecided"
    first = _memorised(memorised)
    if groks.step is not None:
        t = f", {slow_time(groks.slow_time)}" if as_.known(groks.slow_time) else ""
        return "Generalises", f"{first}, generalises at step {as_.count(groks.step)}{t}.", "replace"
    if groks.censored_at is None:
        word = "Memorised" if memorised else "Phase unknown"
        return word, f"{first}; when held-out samples follow is not known.", "undecided"
    accuracy = f": validation accuracy is {as_.share(end[1])} at its end" if end else ""
    text = f"{first}; does not generalise within {as_.count(groks.censored_at)} steps{accuracy}."
    word = "Memorised, not generalising" if memorised else "Not generalising"
    return word, text, "undecided"


def _memorised(time: Time | None) -> str:
    if time is None:
        return "Training accuracy was not measured"
    if time.step is None:
        return "Training accuracy has not stayed at 99 %"
    return (
        "Memorised from the start"
        if time.step == 0
        else f"Memorised at step {as_.count(time.step)}"
    )


def _several(times: Sequence[Times]) -> tuple[str, str, str]:
    mem = sorted(t["T_mem"].step for t in times if "T_mem" in t and t["T_mem"].step is not None)
    grok = [t["T_grok_0.99"] for t in times if "T_grok_0.99" in t]
    steps = sorted(t.step for t in grok if t.step is not None)
    parts = [f"{len(mem)} of {len(times)} runs memorise{_range(mem)}"]
    parts.append(
        f"{len(steps)} generalise{_range(steps)}" if grok else "no held-out samples were measured"
    )
    censored = [t.censored_at for t in grok if t.step is None and t.censored_at is not None]
    if censored:
        parts.append(f"{len(censored)} did not within {as_.count(min(censored))} steps")
    word = f"{len(steps)} of {len(times)} runs generalise"
    return word, f"{', '.join(parts)}.", "replace" if len(steps) == len(times) else "undecided"


def _range(steps: Sequence[int]) -> str:
    if not steps:
        return ""
    if steps[0] == steps[-1]:
        return " from the start" if steps[0] == 0 else f" at step {as_.count(steps[0])}"
    return f" between steps {as_.count(steps[0])} and {as_.count(steps[-1])}"


def one_step_headline(series: Series, run: Run) -> tuple[str, str, str]:
    """Return (word, sentence, tone) of a checkpoint: what is known without a history."""
    found = {m: last(curve_of(series, run, m)) for m in ("train_accuracy", "val_accuracy", "refit_val_accuracy", "complexity")}  # fmt: skip
    parts = [
        f"{NUMBERS[m][0].lower()}{NUMBERS[m][1:]} {number(m, end[1])}"
        for m, end in found.items() if end
    ]  # fmt: skip
    text = ", ".join(parts)
    sentence = f"{text[:1].upper()}{text[1:]}." if text else "See the numbers below."
    return "One checkpoint", sentence, "none"


def forwarded_headline(series: Series, run: Run) -> tuple[str, str, str]:
    """Return (word, sentence, tone) of a fast-forward, whose steps are gradients."""
    steps = max(curve_of(series, run, "complexity") or curve_of(series, run, "val_accuracy") or [0])
    word, text, tone = one_step_headline(series, run)
    return (
        "Fast-forwarded",
        f"After {as_.count(steps)} gradients: {text[0].lower()}{text[1:]}",
        tone,
    )


def ahead_rows(ahead: Mapping) -> list[tuple[str, str]]:
    """Return (question, answer) about what lies ahead of a checkpoint; nothing where it was not computed."""
    if not ahead:
        return []
    end, t99 = ahead["fast_forward"], ahead["isolated_slow_time_to_99"]
    reached = "no 99 % within slow time 6" if t99 is None else f"99 % in slow time {t99:.2f}"
    return [
        (
            "Fast-forward from here",
            f"held-out accuracy {end['test_accuracy']:.1%} at C = {end['complexity']:.1f} after "
            f"{end['gradients']} gradients",
        ),
        ("Isolated flow from here", reached),
        ("Can the task generalise?", ahead["will_it_grok"]["words"]),
        ("When?", ahead["forecast"]["words"]),
    ]
