"""The other tables of the page: runs, arms, plan and versions, rules, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from triplepoint.report import formats as as_
from triplepoint.report.series import Arm, Series, last, lowest


def run_rows(series: Series) -> list[dict]:
    """Return one row per arm and seed: its last and best losses, speed and memory."""
    return [_run_row(series, arm, seed) for arm in series.arms for seed in series.seeds(arm)]


def _run_row(series: Series, arm: Arm, seed: int | None) -> dict:
    def of(metric: str) -> dict:
        return series.whole.get((metric, arm.key), {}).get(seed, {})

    def end(metric: str) -> float | None:
        return (last(of(metric)) or (None, None))[1]

    step, val = last(of("val_loss")) or (None, None)
    best_step, best = lowest(of("val_loss")) or (None, None)
    return {
        "arm": arm, "seed": as_.plain(seed), "steps": as_.count(step or (last(of("train_loss")) or [None])[0]),
        "val": as_.loss(val), "best": as_.loss(best), "best_step": as_.count(best_step),
        "train": as_.loss(end("train_loss")), "time": as_.duration(end("step_time")),
        "tokens": as_.count(end("tokens_per_s")), "memory": as_.memory(end("peak_memory")),
    }  # fmt: skip


PLAN = {
    "steps": "Planned steps", "tokens": "Tokens processed", "unique_tokens": "Distinct tokens",
    "epochs": "Epochs", "tokens_per_parameter": "Tokens per parameter", "parameter_convention": "Parameters counted as",
    "schedule": "Learning-rate schedule", "lr": "Peak learning rate", "calibration_steps": "Calibration steps",
    "s1_share": "Share of the plan's S1 that the calibration covers",
}  # fmt: skip


def facts(manifest: Mapping, plan: Mapping) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what was run, in groups: (title, [(name, value)])."""
    named = {PLAN[key]: plan[key] for key in PLAN if plan.get(key) is not None}
    share = PLAN["s1_share"]
    if share in named:
        named[share] = as_.share(named[share])
    named.update({key: plan[key] for key in plan if key not in PLAN and key != "assumed"})
    run = {
        "status": manifest.get("status"),
        "started": manifest.get("started"),
        "seeds": manifest.get("seeds"),
    }
    run |= {"triplepoint": manifest.get("version"), "identity": manifest.get("identity")}
    groups = {
        "Plan": named,
        "Model": manifest.get("model"),
        "Data": manifest.get("data"),
        "Recipe": manifest.get("recipe"),
        "Run": run,
        "Versions": manifest.get("versions"),
    }
    return [
        (
            title,
            [
                (str(key).replace("_", " "), as_.plain(value))
                for key, value in group.items()
                if value is not None
            ],
        )
        for title, group in groups.items()
        if isinstance(group, Mapping) and any(value is not None for value in group.values())
    ]


def arm_rows(manifest: Mapping, series: Series) -> list[dict]:
    """Return how each arm was made, as the manifest says."""
    declared = manifest.get("arms") or {}
    rows = [(arm, declared.get(arm.name) or {}) for arm in series.arms]
    keys = ("role", "op", "preset", "lr", "preset_source")
    return [
        {"arm": arm, **{key: as_.plain(made.get(key)) for key in keys}}
        for arm, made in rows
        if made
    ]


def rule_rows(rules: Sequence[Mapping] | None) -> list[dict]:
    """Return the published rules, what each says here, and its record."""
    words = {True: "replace", False: "keep", None: "cannot say"}
    rows = []
    for rule in rules or []:
        says = rule.get("says")
        word = words[says] if says is None or isinstance(says, bool) else str(says)
        rows.append(
            {"name": str(rule.get("name")), "says": word, "record": as_.plain(rule.get("record"))}
        )
    return rows


def cost_of(cost: Mapping | None) -> dict | None:
    """Return what was spent against what is at stake, in words; None where neither is known."""
    if not cost:
        return None
    share = cost.get("spent_share")
    return {
        "spent": as_.duration(cost.get("spent_s")),
        "at_stake": as_.duration(cost.get("at_stake_s")),
        "share": as_.share(share) if as_.known(share) else None,
        "width": round(100 * min(max(share, 0), 1), 2) if as_.known(share) else 0,
    }
