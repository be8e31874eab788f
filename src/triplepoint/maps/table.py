"""One table of a map: its cells, its pairs by seed, and its effects over seeds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from triplepoint.maps.pairs import ENDPOINTS, Pair, difference, endpoint_row
from triplepoint.maps.plans import MapPlan
from triplepoint.maps.results import CellResult
from triplepoint.sweeps.grid import AXES, CellSettings

PARAMETERS = "params_no_positions"
"""The P of T/P: all parameters but learned positions, tied ones once; as arXiv 2604.23434 counts."""


class Column(NamedTuple):
    """What a column of the table holds."""

    type: type
    text: str


def _endpoint_columns() -> Iterator[tuple[str, Column]]:
    told = {
        "fixed_step": "at the last step",
        "best_checkpoint": "at each arm's own best evaluation",
        "matched_train_loss": "at equal train loss; never a criterion; in cell rows empty",
    }
    for name in ENDPOINTS:
        yield name, Column(float, f"cell: validation loss, nats/token (nats/image for vit); pair and effect: (candidate - baseline) / baseline, a fraction, positive = worse; {told[name]}")  # fmt: skip
        for end in ("low", "high"):
            yield f"{name}_bootstrap_{end}", Column(float, f"{end} end of the 95 % interval, windows (in effect rows also seeds) resampled")  # fmt: skip
        for end in ("low", "high"):
            yield f"{name}_t_{end}", Column(float, f"effect: {end} end of Student's 95 % interval over the seeds; empty with one seed")  # fmt: skip


_TYPES: dict[str, type] = {
    **dict.fromkeys(AXES, str),
    **dict.fromkeys(("alpha", "gate_scale", "dropout", "weight_decay", "lr"), float),
    **dict.fromkeys(("unique_tokens", "width", "layers", "heads", "kv_heads", "warmup", "steps", "batch", "context", "seed"), int),
}  # fmt: skip

COLUMNS: dict[str, Column] = {
    "row": Column(str, "cell: one run; pair: candidate against baseline, one seed; effect: the same over all seeds"),
    "arm": Column(str, "what is done in the cell, or in the candidate"),
    "baseline": Column(str, "arm that it is compared with; empty in cell rows of baselines"),
    "is_baseline": Column(bool, "whether the cell is a baseline"),
    "family": Column(str, "gpt2, llama or vit"),
    **{axis: Column(_TYPES[axis], f"axis of the plan; empty: {'all seeds' if axis == 'seed' else 'the default of the size, the op or the data'}") for axis in AXES},
    "seeds": Column(int, "seeds that the row is over and that have the fixed step in both arms"),
    **dict(_endpoint_columns()),
    "report_fixed_step": Column(float, "cell: loss on the report windows at the last step, nats/token"),
    "report_best_checkpoint": Column(float, "cell: the same with the weights of the best validation loss"),
    "train_loss": Column(float, "cell: loss on the fixed train windows at the last step, nats/token"),
    "best_step": Column(int, "cell: step of the best validation loss"),
    "train_tokens": Column(int, "tokens in the training split; images for vit"),
    "tokens_seen": Column(int, "tokens processed, or images"),
    "epochs": Column(float, "tokens_seen / train_tokens"),
    "params_total": Column(int, "all parameters, tied ones once"),
    "params_no_positions": Column(int, "all but learned positions: the P of T/P, as arXiv 2604.23434 counts"),
    "params_non_embedding": Column(int, "neither positions nor token embeddings, as Kaplan et al. count"),
    "tokens_per_parameter": Column(float, f"T/P: the smaller of train_tokens and the tokens of the planned steps over {PARAMETERS}, also where the run diverged; empty for vit"),
    "saturation_end": Column(float, "mean over sites of the share with |alpha x| > 2 at the last evaluation; effect: mean over seeds"),
    "saturation_500": Column(float, "the same at step 500"),
    "alpha_drift_std": Column(float, "standard deviation over sites of alpha - alpha(0) at the end"),
    "prediction_kl": Column(float, "nats at the end; 0 where the network ignores its input"),
    "plateau": Column(float, "validation loss of the training text's unigram frequencies, nats/token"),
    "plateau_exit_step": Column(int, "first of three evaluations in a row below the plateau; empty: never left"),
    "phase": Column(str, "at the end; effect: the worst of the seeds"),
    "phase_reason": Column(str, "why"),
    "stalled": Column(bool, "on the plateau with predictions that ignore the input while the baseline has left it, collapsed or not"),
    "collapsed": Column(bool, "stalled at the end of the plan"),
    "diverged": Column(bool, "the loss left its range"),
    "stalled_seeds": Column(int, "effect: seeds of the candidate that stalled"),
    "collapsed_seeds": Column(int, "effect: seeds of the candidate that collapsed"),
    "diverged_seeds": Column(int, "effect: seeds of either arm that diverged, left out of the differences"),
    "folder": Column(str, "cell: its run folder under the map's"),
    "identity": Column(str, "cell: content hash of what was asked"),
    "baseline_folder": Column(str, "pair: the baseline's run folder"),
}  # fmt: skip
"""Name -> type and meaning of every column of ``table.parquet``. Timings are not among them: two runs of the same
map give the same table."""

WORST_FIRST = ("diverged", "collapsed", "stalled", "fitting", "overfitting", "memorised", "generalising")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Compared:
    """The finished cells of a map, each with its baseline."""

    plan: MapPlan
    results: Sequence[CellResult]

    def baseline_of(self, result: CellResult) -> CellResult | None:
        """Return the finished baseline of a cell: itself for a baseline, None where there is none."""
        wanted = self.plan.baseline_of(result.planned.settings)
        return self._by_settings.get(key_of(wanted))

    @functools.cached_property
    def _by_settings(self) -> dict[tuple, CellResult]:
        return {key_of(r.planned.settings): r for r in self.results}

    def pairs(self) -> list[Pair]:
        """Return all pairs, in the order of their candidates."""
        found = ((r, self.baseline_of(r)) for r in self.results)
        return [Pair(r, b) for r, b in found if b is not None and b is not r]

    def effects(self) -> list[list[Pair]]:
        """Return the pairs grouped over seeds."""
        groups: dict[tuple, list[Pair]] = {}
        for pair in self.pairs():
            groups.setdefault(key_of(pair.candidate.planned.settings, but="seed"), []).append(pair)
        return list(groups.values())


def key_of(settings: CellSettings, *, but: str = "") -> tuple:
    """Return the axes of a cell and their values, to group by; ``but`` leaves one out."""
    return tuple((k, v) for k, v in settings.model_dump().items() if k != but)


def rows_of(compared: Compared) -> list[dict[str, Any]]:
    """Return the rows of the table: cells, then pairs, then effects, each in the order of the plan."""
    cells = {id(r): _cell_row(compared, r) for r in compared.results}
    pairs = [_pair_row(pair, cells) for pair in compared.pairs()]
    effects = [_effect_row(group, cells) for group in compared.effects()]
    return [*cells.values(), *pairs, *effects]


def _cell_row(compared: Compared, result: CellResult) -> dict[str, Any]:
    settings, baseline = result.planned.settings, compared.baseline_of(result)
    own = baseline is result
    judged = result.phase(baseline.exit_step if baseline is not None and not own else None)
    seen = result.last_step * result.tokens_per_step
    val = result.val.mean(axis=1)
    against = compared.plan.arm_of(compared.plan.baseline_of(settings))
    row = {
        "row": "cell", "arm": result.planned.arm, "baseline": None if own else against, "is_baseline": own,
        "family": settings.family, **settings.model_dump(), **result.params, "seeds": 1,
        "train_tokens": result.train_tokens, "tokens_seen": seen, "epochs": seen / result.train_tokens,
        "saturation_end": result.saturation_end, "saturation_500": result.saturation_500,
        "alpha_drift_std": result.alpha_drift_std, "prediction_kl": result.prediction_kl,
        "plateau": result.plateau, "plateau_exit_step": result.exit_step,
        "phase": judged.phase, "phase_reason": judged.reason,
        "stalled": judged.phase in ("stalled", "collapsed"), "collapsed": judged.phase == "collapsed",
        "diverged": not result.usable,
        "folder": result.planned.told()["folder"], "identity": result.planned.identity,
    }  # fmt: skip
    if settings.family != "vit":
        planned = settings.steps * result.tokens_per_step
        row["tokens_per_parameter"] = min(planned, result.train_tokens) / result.params[PARAMETERS]
    if result.usable:
        row |= {
            "fixed_step": float(endpoint_row(result, "fixed_step").mean()),
            "best_checkpoint": float(endpoint_row(result, "best_checkpoint").mean()),
            "train_loss": float(result.train[-1].mean()),
            "best_step": int(result.steps[val.argmin()]),
            **{f"report_{endpoint}": loss for endpoint, loss in result.report.items()},
        }
    return row


_OF_A_RUN = (
    "fixed_step", "best_checkpoint", "train_loss", "best_step", "report_fixed_step", "report_best_checkpoint", "identity",
)  # fmt: skip
"""Columns of a cell that a comparison has not, or has with another meaning."""


def _pair_row(pair: Pair, cells: dict[int, dict[str, Any]]) -> dict[str, Any]:
    candidate = cells[id(pair.candidate)]
    kept = {k: v for k, v in candidate.items() if k not in _OF_A_RUN}
    folder = cells[id(pair.baseline)]["folder"]
    diverged = not pair.usable
    return {
        **kept,
        "row": "pair",
        "diverged": diverged,
        "baseline_folder": folder,
        **_differences([pair]),
    }


def _effect_row(pairs: Sequence[Pair], cells: dict[int, dict[str, Any]]) -> dict[str, Any]:
    rows = [cells[id(p.candidate)] for p in pairs]
    worst = min(rows, key=lambda row: WORST_FIRST.index(row["phase"]))
    kept = {k: v for k, v in worst.items() if k not in (*_OF_A_RUN, "folder", "plateau_exit_step")}
    means = ("saturation_end", "saturation_500", "alpha_drift_std", "prediction_kl")
    return {
        **kept,
        **{name: _mean(row[name] for row in rows) for name in means},
        "row": "effect",
        "seed": None,
        "seeds": sum(p.usable for p in pairs),
        "diverged": any(not p.usable for p in pairs),
        "stalled_seeds": sum(row["stalled"] for row in rows),
        "collapsed_seeds": sum(row["collapsed"] for row in rows),
        "diverged_seeds": sum(not p.usable for p in pairs),
        **_differences(pairs),
    }


def _differences(pairs: Sequence[Pair]) -> dict[str, float]:
    found: dict[str, float] = {}
    for endpoint in ENDPOINTS:
        told = difference(pairs, endpoint)
        if told is None:
            continue
        found[endpoint] = told.value
        for kind, interval in (("bootstrap", told.bootstrap), ("t", told.t)):
            if interval is not None:
                found[f"{endpoint}_{kind}_low"], found[f"{endpoint}_{kind}_high"] = interval
    return found


def _mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None
