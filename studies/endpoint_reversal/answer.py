"""Stored records -> the study's tables, its picture and one line of JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np

from studies.endpoint_reversal.cells import ARMS, OTHER_RATES, RATE, TOKENS, Setting
from triplepoint.phases import plateau_exit_step
from triplepoint.records import Record, read_parquet
from triplepoint.runs import read_arrays
from triplepoint.statistics import paired_relative_interval

CANDIDATES = ARMS[1:]
LOOK = 500
"""The step at which a screen of the paper's length would look."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """What was kept of one run."""

    setting: Setting
    steps: np.ndarray
    val: np.ndarray
    """Losses [evaluation, window], nats per byte."""
    plateau: float
    records: list[Record]

    @property
    def curve(self) -> np.ndarray:
        """Mean validation loss per evaluation."""
        return self.val.mean(axis=1)

    @property
    def best(self) -> int:
        """Index of the lowest validation loss."""
        return int(self.curve.argmin())

    def saturation(self, step: int) -> float | None:
        """Mean over sites of the share of pre-activations beyond 2."""
        found = [r.value for r in self.records if r.metric == "saturation@2" and r.step == step]
        return float(np.mean(found)) if found else None

    @property
    def exit(self) -> int | None:
        """Step at which the run left the unigram plateau."""
        return plateau_exit_step(self.steps.tolist(), self.curve.tolist(), self.plateau)


def load(stored: Path, wanted: list[Setting]) -> list[Stored]:
    """Read the runs that are there."""
    found = []
    for setting in wanted:
        table, arrays = stored / f"{setting.name}.parquet", stored / f"{setting.name}.npz"
        if table.exists():
            a = read_arrays(arrays)
            found.append(
                Stored(
                    setting,
                    a["eval_steps"],
                    a["val_loss"].astype(float),
                    float(a["plateau"]),
                    read_parquet(table),
                )
            )
    return found


def pick(runs: list[Stored], **where: object) -> list[Stored]:
    """Return the runs whose setting has these values, by seed."""
    return [r for r in runs if all(getattr(r.setting, k) == v for k, v in where.items())]


def compare(
    candidate: list[Stored], baseline: list[Stored], *, best: bool
) -> tuple[float, float, float] | None:
    """Return delta_rel with its interval over the seeds that both arms have; None where there is none."""
    seeds = sorted({r.setting.seed for r in candidate} & {r.setting.seed for r in baseline})
    if not seeds:
        return None
    c, b = (
        np.stack([r.val[r.best if best else -1] for r in sorted(arm, key=lambda r: r.setting.seed) if r.setting.seed in seeds])
        for arm in (candidate, baseline)
    )  # fmt: skip
    return paired_relative_interval(c, b)


def main_table(runs: list[Stored]) -> list[dict]:
    """One row per data size and candidate, at the main rate."""
    rows = []
    for tokens in TOKENS:
        baseline = pick(runs, arm="layernorm", tokens=tokens, lr=RATE)
        for arm in CANDIDATES:
            candidate = pick(runs, arm=arm, tokens=tokens, lr=RATE)
            fixed, best = (compare(candidate, baseline, best=b) for b in (False, True))
            if fixed is None:
                continue
            rows.append(
                {
                    "tokens": tokens,
                    "arm": arm,
                    "seeds": len(candidate),
                    "fixed_step": fixed,
                    "best_checkpoint": best,
                    "baseline_end": _mean(r.curve[-1] for r in baseline),
                    "baseline_best": _mean(r.curve[r.best] for r in baseline),
                    "end": _mean(r.curve[-1] for r in candidate),
                    "best": _mean(r.curve[r.best] for r in candidate),
                    "saturation_500": [r.saturation(LOOK) for r in candidate],
                    "saturation_end": [r.saturation(int(r.steps[-1])) for r in candidate],
                    "exit": [r.exit for r in candidate],
                }
            )
    return rows


def rate_table(runs: list[Stored]) -> list[dict]:
    """Seed 0 only: every arm at each rate, and at its own best one."""
    rows = []
    for tokens in TOKENS:
        for arm in ARMS:
            tried = {
                lr: found[0]
                for lr in sorted((*OTHER_RATES, RATE))
                if (found := pick(runs, arm=arm, tokens=tokens, seed=0, lr=lr))
            }
            if tried:
                rows.append(
                    {
                        "tokens": tokens,
                        "arm": arm,
                        "best": {f"{lr:.2g}": float(r.curve[r.best]) for lr, r in tried.items()},
                        "end": {f"{lr:.2g}": float(r.curve[-1]) for lr, r in tried.items()},
                    }
                )
    return rows


def _mean(values: object) -> float:
    return float(np.mean(list(values)))


def answer(stored: Path, wanted: list[Setting], *, quick: bool) -> None:
    """Print the tables, write the picture, and end with one line of JSON."""
    runs = load(stored, wanted)
    rows, rates = main_table(runs), rate_table(runs)
    print(f"{len(runs)} of {len(wanted)} runs\n")
    print(
        "| bytes | arm | seeds | LN end | LN best | end | best | delta, fixed step | delta, best checkpoint | left plateau at | sat@2 step 500 | sat@2 end |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        print(
            f"| {r['tokens']:,} | {r['arm']} | {r['seeds']} | {r['baseline_end']:.3f} | {r['baseline_best']:.3f} | {r['end']:.3f} "
            f"| {r['best']:.3f} | {_interval(r['fixed_step'])} | {_interval(r['best_checkpoint'])} | {_list(r['exit'], 'd')} "
            f"| {_list(r['saturation_500'])} | {_list(r['saturation_end'])} |"
        )
    print("\nPeak rate, seed 0: validation loss at the best checkpoint (at the last step)\n")
    names = [f"{lr:.2g}" for lr in sorted((*OTHER_RATES, RATE))]
    print("| bytes | arm | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names))
    for r in rates:
        cells = [
            f"{r['best'][n]:.3f} ({r['end'][n]:.3f})" if n in r["best"] else "not run"
            for n in names
        ]
        print(f"| {r['tokens']:,} | {r['arm']} | " + " | ".join(cells) + " |")
    if not quick:
        picture(runs, Path(__file__).parent / "report.html")
    print(
        json.dumps(
            {
                "name": "endpoint_reversal",
                "figures": figures(rows, rates, len(runs), len(wanted)),
                "machine": "2 CPU cores, 1 thread a run",
            }
        )
    )


def _interval(found: tuple[float, float, float]) -> str:
    delta, low, high = (100 * x for x in found)
    return f"{delta:+.1f} % [{low:+.1f}, {high:+.1f}]"


def _list(values: list, form: str = ".2f") -> str:
    return ", ".join("never" if v is None else f"{v:{form}}" for v in values)


def figures(rows: list[dict], rates: list[dict], done: int, wanted: int) -> dict:
    """Return the numbers that a reader quotes."""
    found: dict = {"runs": done, "runs_wanted": wanted}
    for r in rows:
        key = f"{r['arm']}_{r['tokens']}"
        for endpoint in ("fixed_step", "best_checkpoint"):
            delta, low, high = r[endpoint]
            found[f"{key}_{endpoint}"] = {
                "delta_rel": round(delta, 4),
                "interval": [round(low, 4), round(high, 4)],
            }
        found[f"{key}_saturation_500"] = [
            None if v is None else round(v, 3) for v in r["saturation_500"]
        ]
    for tokens in TOKENS:
        own = {
            r["arm"]: min(r["best"].values(), default=math.nan)
            for r in rates
            if r["tokens"] == tokens and len(r["best"]) > 1
        }
        for arm in CANDIDATES:
            if arm in own and "layernorm" in own:
                found[f"{arm}_{tokens}_own_rate_best_checkpoint"] = round(
                    own[arm] / own["layernorm"] - 1, 4
                )
    return found


COLOURS = {"layernorm": "#0072B2", "dyt:paper": "#D55E00", "dyt:recommended": "#009E73"}


def picture(runs: list[Stored], path: Path) -> None:
    """Write the validation curves of all seeds at the main rate, one panel per data size."""
    from plotly.subplots import make_subplots

    from triplepoint.runs import atomic_path

    titles = [f"{tokens:,} training bytes" for tokens in TOKENS]
    figure = make_subplots(rows=1, cols=len(TOKENS), subplot_titles=titles, shared_yaxes=True)
    for column, tokens in enumerate(TOKENS, 1):
        for run in pick(runs, tokens=tokens, lr=RATE):
            arm, first = run.setting.arm, run.setting.seed == 0
            figure.add_scatter(
                x=run.steps, y=run.curve, row=1, col=column, name=arm, legendgroup=arm, mode="lines",
                showlegend=first and column == 1, line={"color": COLOURS[arm], "width": 1.5},
            )  # fmt: skip
            figure.add_scatter(
                x=[run.steps[run.best]], y=[run.curve[run.best]], row=1, col=column, mode="markers", legendgroup=arm,
                showlegend=False, marker={"color": COLOURS[arm], "size": 8, "symbol": "circle-open"},
            )  # fmt: skip
        level = next(r.plateau for r in runs if r.setting.tokens == tokens)
        figure.add_scatter(
            x=[0, 3000], y=[level, level], row=1, col=column, mode="lines", name="unigram plateau", legendgroup="plateau",
            showlegend=column == 1, line={"color": "#888", "width": 1, "dash": "dash"},
        )  # fmt: skip
    figure.update_layout(
        template="simple_white", width=1100, height=460, title="Validation loss, every seed; circles mark each run's best checkpoint",
        title_font_size=14,
    )  # fmt: skip
    figure.update_xaxes(title_text="step")
    figure.update_yaxes(title_text="nats per byte", col=1)
    figure.update_yaxes(range=[1.6, 3.5])
    with atomic_path(path) as beside:
        figure.write_html(beside, div_id="endpoint-reversal", config={"displayModeBar": False})
