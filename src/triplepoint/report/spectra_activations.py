"""What data showed of an inspected model: whole-model numbers, and a row per site."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from triplepoint.records import Record
from triplepoint.report import formats as as_

WHOLE = {
    "train_loss": "Training loss, nats", "val_loss": "Validation loss, nats",
    "train_val_gap": "Gap: validation minus training, nats",
}  # fmt: skip
SITES = {
    "saturation@2": "saturated", "saturation_slope": "flat", "activation_rank": "effective rank",
    "activation_rank_centred": "centred", "activation_rank_participation": "participation",
    "activation_rank_stable": "stable rank",
}  # fmt: skip
"""Metric at the norms and the ops in their place -> heading of its column, in their order."""
LINEAR = {"dead_units": "dead units"}
"""The same at linear layers."""
SHARES = {"saturation@2", "saturation_slope", "dead_units"}

Table = tuple[list[str], list[tuple[str, list[str]]]]
"""Headings, and (site, cells) of each row."""


def whole_numbers(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Return (name, value) of what was measured on the model as a whole."""
    rows = [(WHOLE[r.metric], f"{r.value:.4f}".replace("-", as_.MINUS)) for r in _whole(records) if r.metric in WHOLE]  # fmt: skip
    for record in _whole(records):
        name, mark, size = record.metric.partition("@")
        if name == "noise_stability" and mark:
            rows.append(
                (f"Change of the logits per noise on the embedding, size {size}", f"{record.value:#.3g}")
            )  # fmt: skip
    return rows


def _whole(records: Iterable[Record]) -> list[Record]:
    return [r for r in records if r.site is None]


def site_table(records: Iterable[Record], metrics: Mapping[str, str] = SITES) -> Table:
    """Return what was measured at sites; a column that no site has is left out."""
    by: dict[str, dict[str, float]] = {}
    for record in records:
        if record.site is not None and record.metric in metrics:
            by.setdefault(record.site, {})[record.metric] = record.value
    columns = [m for m in metrics if any(m in values for values in by.values())]
    rows = [(site, [_cell(m, values) for m in columns]) for site, values in by.items()]
    return [metrics[m] for m in columns], rows


def dead_units(records: Iterable[Record]) -> str:
    """Say in a sentence how many linear layers have dead inputs; empty where that was not measured."""
    found = [r for r in records if r.metric == "dead_units" and r.site is not None]
    if not found:
        return ""
    dead = [r for r in found if r.value > 0]
    if not dead:
        return f"None of the {len(found)} linear layers has dead inputs."
    most = max(dead, key=lambda r: r.value)
    return f"{len(dead)} of {len(found)} linear layers have dead inputs, most of all {most.site}: {as_.share(most.value)}."


def _cell(metric: str, values: Mapping[str, float]) -> str:
    value = values.get(metric)
    if not as_.known(value):
        return as_.DASH
    return as_.share(value) if metric in SHARES else f"{value:.1f}"
