"""Stored records -> the study's tables and figures."""

from __future__ import annotations

import statistics

from studies.will_it_grok.cells import SEEDS, forward_name, outlook_of
from studies.will_it_grok.scoring import Scored, confusion, fit_threshold, rates
from studies.will_it_grok.settings import FITTING, LONGER, REPEATED, TESTING, Setting
from triplepoint.grokking import WILL_GROK_BELOW
from triplepoint.records import Record
from triplepoint.statistics import auc

Rows = dict[str, list[Record]]
TARGETS = {23: 30, 37: 70}
"""Gradients to 99 % that were aimed at."""
EARLIER = 0.96
"""The threshold before this study, read off fast-forwards instead of AdamW runs."""


def answer(stored: Rows) -> dict[str, object]:
    """Print the tables, and return the figures."""
    fitting = [s for setting in FITTING if (s := scored(setting, stored, WILL_GROK_BELOW))]
    testing = [s for setting in TESTING if (s := scored(setting, stored, WILL_GROK_BELOW))]
    figures: dict[str, object] = {"threshold": WILL_GROK_BELOW}
    if len({s.grokked for s in fitting}) == 2:
        fitted = fit_threshold([(s.outlook.ratio, s.grokked) for s in fitting])
        figures["threshold_fitted"] = fitted
        print(f"Threshold fitted on {len(fitting)} settings: {fitted} (shipped: {WILL_GROK_BELOW})")
    for name, group in (("fitting", fitting), ("testing", testing)):
        if group:
            print(f"\n{len(group)} settings for {name}\n")
            _settings_table(group)
            figures[name] = _score(group)
    _explanations(stored)
    figures["forward"] = _forwards(stored)
    return figures


def scored(setting: Setting, stored: Rows, threshold: float) -> Scored | None:
    """Join the two cells of a setting; None while one is missing."""
    truth, ratio = (stored.get(f"{kind}_{setting.name}") for kind in ("truth", "ratio"))
    if truth is None or ratio is None:
        return None
    held_out = [r for r in truth if r.metric == "val_accuracy"]
    value = {r.metric: r.value for r in truth if r.metric in ("T_mem", "T_grok", "cpu_time")}
    return Scored(
        name=setting.name,
        grokked_at=int(value["T_grok"]) if "T_grok" in value else None,
        memorised_at=int(value["T_mem"]) if "T_mem" in value else None,
        end=held_out[-1].value,
        best=max(r.value for r in held_out),
        held_out=held_out[-1].n,
        steps=held_out[-1].step,
        adamw_s=value["cpu_time"],
        ratio_s=next(r.value for r in ratio if r.metric == "cpu_time"),
        outlook=outlook_of(ratio, threshold),
    )


def _settings_table(group: list[Scored]) -> None:
    print(
        "| setting | C_real / C_shuffled (spread) | answer | AdamW | memorised at | grokked at "
        "| held-out end (best) of n | CPU s, ratio / AdamW |\n|---|---|---|---|---|---|---|---|"
    )
    for s in sorted(group, key=lambda s: s.outlook.ratio):
        low, high = s.outlook.spread
        print(
            f"| {s.name} | {s.outlook.ratio:.3f} ({low:.3f}-{high:.3f}) | {s.outlook.answer} "
            f"| {'grokked' if s.grokked else 'did not'} | {s.memorised_at or 'never'} "
            f"| {s.grokked_at or f'> {s.steps}'} | {s.end:.3f} ({s.best:.3f}) of {s.held_out} "
            f"| {s.ratio_s:.1f} / {s.adamw_s:.1f} |"
        )


def _score(group: list[Scored]) -> dict[str, object]:
    table = confusion(group)
    print("\n| AdamW | yes | no | undecided | median below | settings |\n|---|---|---|---|---|---|")
    for truth, row in table.items():
        print(f"| {truth} | " + " | ".join(str(n) for n in row.values()) + " |")
    print()
    found = rates(table)
    for name, (k, n, low, high) in found.items():
        print(f"- {name}: {k} of {n} = {k / n:.2f} [{low:.2f}, {high:.2f}]")
    ratios, grokked = [s.outlook.ratio for s in group], [s.grokked for s in group]
    separates = None
    if len(set(grokked)) == 2:
        separates = round(auc([-ratio for ratio in ratios], grokked), 3)
        earlier = sum(
            (ratio < EARLIER) == truth for ratio, truth in zip(ratios, grokked, strict=True)
        )
        print(f"- AUC of the ratio: {separates}")
        print(
            f"- right by the median with the earlier threshold {EARLIER}: {earlier} of {len(group)}"
        )
    misses = [
        s.name for s in group if s.outlook.answer != "undecided"
        and (s.outlook.answer == "yes") != s.grokked
    ]  # fmt: skip
    return {
        "confusion": table,
        "rates": {
            name: [k, n, round(lo, 3), round(hi, 3)] for name, (k, n, lo, hi) in found.items()
        },
        "auc": separates,
        "misses": misses,
        "undecided": [s.name for s in group if s.outlook.answer == "undecided"],
    }


def _explanations(stored: Rows) -> None:
    """Print what was run afterwards; none of it scores."""
    longer = [
        (setting, stored[name])
        for setting in LONGER
        if (name := f"longer_{setting.name}") in stored
    ]
    if longer:
        print("\nAfterwards: the runs that were near it, with twice the steps\n")
        print("| setting | grokked at | held-out end (best) of n |\n|---|---|---|")
    for setting, rows in longer:
        held_out = [r for r in rows if r.metric == "val_accuracy"]
        when = next((f"{r.value:.0f}" for r in rows if r.metric == "T_grok"), None)
        print(
            f"| {setting.name} | {when or f'> {held_out[-1].step}'} | {held_out[-1].value:.3f} "
            f"({max(r.value for r in held_out):.3f}) of {held_out[0].n} |"
        )
    repeated = [s for setting in REPEATED if (s := scored(setting, stored, WILL_GROK_BELOW))]
    if repeated:
        print("\nAfterwards: the misses again, with other splits and initial weights\n")
        _settings_table(repeated)


def _forwards(stored: Rows) -> dict[str, object]:
    """Print and return what the fast-forwards cost."""
    figures = {}
    print(
        "\n| p | gradients to 99 % (5 seeds) | target | gradients to the stop | test there | C | CPU s |"
    )
    print("|---|---|---|---|---|---|---|")
    for p, target in TARGETS.items():
        runs = [
            {r.metric: r.value for r in stored[forward_name(p, seed)]}
            for seed in SEEDS if forward_name(p, seed) in stored
        ]  # fmt: skip
        if not runs:
            continue
        columns = {key: [run.get(key) for run in runs] for key in runs[0]}
        to_99 = columns["gradients_to_99"]
        print(
            f"| {p} | {_list(to_99, '.0f')} | {target} | {_list(columns['gradients'], '.0f')} "
            f"| {_list(columns['test_accuracy'], '.3f')} | {_list(columns['complexity'], '.1f')} "
            f"| {_list(columns['cpu_time'], '.2f')} |"
        )
        figures[f"p{p}"] = {
            "gradients_to_99": to_99,
            "within_target": None not in to_99 and max(to_99) <= target,
            "test_accuracy": columns["test_accuracy"],
            "cpu_s_median": round(statistics.median(columns["cpu_time"]), 2),
        }
    return figures


def _list(values: list[float | None], form: str) -> str:
    return ", ".join("never" if v is None else f"{v:{form}}" for v in values)
