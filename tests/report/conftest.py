"""Made-up runs, small and smooth, in the shape that `triplepoint screen` and `train` write."""

import functools
import math

import pytest

from triplepoint.records import Record

ARMS = {
    "layernorm": {"op": "layernorm", "preset": None, "role": "baseline", "lr": 0.001},
    "dyt:paper": {
        "op": "dyt",
        "preset": "paper",
        "role": "candidate",
        "lr": 0.001,
        "preset_source": "arXiv 2503.10622, Sec. 4",
    },
    "derf": {"op": "derf", "preset": None, "role": "candidate", "lr": 0.001},
}
DELAY = {"layernorm": 1.0, "dyt:paper": 1.8, "derf": 1.25}
SITES = [f"transformer.h.{i}.ln_{j}" for i in range(6) for j in (1, 2)] + ["transformer.ln_f"]
STEPS = list(range(25, 501, 25))
THRESHOLDS = ("0.5", "1", "1.5", "2", "2.5", "3")


def loss_at(arm, seed, step, *, gap):
    pace = step / DELAY[arm]
    drop = 1.15 / (1 + math.exp(-(pace - 130) / 35)) + 0.35 * (1 - math.exp(-pace / 260))
    rise = gap * (0.06 + 0.22 * max(0, pace - 330) / 170)
    return (
        3.42
        - drop
        - 0.2 * (1 - math.exp(-pace / 15))
        + rise
        + 0.012 * math.sin(step / 31 + 2 * seed)
    )


def whole_records(arm, seed, *, steps=STEPS):
    common = {"arm": arm, "seed": seed}
    for step in steps:
        at = {**common, "step": step}
        s1 = 0.001 * (step - 25 if step > 50 else step / 2)
        yield Record(
            metric="val_loss", value=loss_at(arm, seed, step, gap=1), unit="nats/token", **at
        )
        yield Record(
            metric="train_loss", value=loss_at(arm, seed, step, gap=0), unit="nats/token", **at
        )
        yield Record(metric="s1", value=s1, **at)
    yield Record(metric="step_time", value=0.0462, unit="s", **common)
    yield Record(metric="tokens_per_s", value=22170.0, **common)
    yield Record(metric="peak_memory", value=1.9 * 2**30, unit="bytes", **common)
    best = {**common, "endpoint": "best_checkpoint", "step": 350}
    yield Record(metric="report_loss", value=loss_at(arm, seed, 350, gap=1), **best)


def site_records(arm, seed, *, steps=STEPS, sites=SITES):
    for step in steps:
        for place, site in enumerate(sites):
            at = {"arm": arm, "seed": seed, "step": step, "site": site}
            depth = place / len(sites)
            spread = (0.4 + 1.6 * depth) * (0.5 + step / 500)
            for threshold in THRESHOLDS:
                value = math.erfc(float(threshold) / spread / math.sqrt(2))
                yield Record(metric=f"saturation@{threshold}", value=value, **at)
            yield Record(metric="alpha", value=0.5 + (depth - 0.3) * step / 700 + 0.01 * seed, **at)


def screen_manifest(arms=tuple(ARMS), seeds=(0, 1), **more):
    return {
        "schema": 1,
        "identity": "9f2c4b1d0a7e6835",
        "asked": {"kind": "screen", "steps": 500},
        "status": "finished",
        "version": "0.1.0",
        "command": "triplepoint screen gpt2-10m --data corpus.txt --candidates dyt:paper,derf --out out/screen",
        "started": "2025-05-04T09:12:31",
        "versions": {"python": "3.11.9", "torch": "2.9.0", "numpy": "2.1.0"},
        "data": {
            "source": "corpus.txt",
            "sha256": "b5d4045c3f466fa91fe2cc6abe79232a1a57cdf104f7a26e716e0a1e2789df78",
            "unit": "byte",
            "vocab": 256,
            "train_tokens": 10_000_000,
            "validation_tokens": 500_000,
        },
        "plateau": {"val": 3.05, "train": 3.06},
        "model": {
            "name": "gpt2-10m",
            "params_total": 10_745_088,
            "params_non_embedding": 10_646_784,
        },
        "arms": {name: ARMS[name] for name in arms},
        "seeds": list(seeds),
        "recipe": {
            "steps": 500,
            "lr": 0.001,
            "warmup": 50,
            "schedule": "cosine",
            "weight_decay": 0.1,
        },
        "metrics": {
            "val_loss": {
                "definition": "mean cross-entropy over fixed validation windows, raw weights",
                "unit": "nats/token",
                "source": "this library",
            },
            "saturation@2": {
                "definition": "fraction of elements with |alpha x| > 2",
                "unit": "fraction",
                "source": "arXiv 2604.23434",
            },
        },
        **more,
    }


def candidate(arm, delta, *, verdict, **more):
    spread = [delta - 0.006, delta + 0.007]
    end = {"delta_rel": delta, "interval": spread, "baseline_loss": 1.742, "baseline_step": 500}
    best = {
        "delta_rel": delta / 2,
        "interval": [delta / 2 - 0.004, delta / 2 + 0.004],
        "baseline_loss": 1.706,
    }
    return {
        "op": ARMS[arm]["op"],
        "preset": ARMS[arm]["preset"],
        "arm": arm,
        "verdict": verdict,
        "why": "behind the baseline at both endpoints, and the plan leaves no room to catch up",
        "delta_rel": delta,
        "interval": spread,
        "endpoints": {
            "fixed_step": {**end, "candidate_loss": 1.742 * (1 + delta), "candidate_step": 500},
            "best_checkpoint": {
                **best,
                "baseline_step": 350,
                "candidate_loss": 1.706 * (1 + delta / 2),
                "candidate_step": 475,
            },
            "matched_train_loss": None,
        },
        "speed_ratio": 0.56,
        "break_even_speed_ratio": 0.91,
        "offset": 0.021,
        "break_even_offset": -0.034,
        "saturation_2": 0.187,
        "stalled": False,
        "collapsed": False,
        "phase": "generalising",
        "phase_reason": "left the plateau at step 250; validation loss 1.790",
        "plateau_exit_step": 250,
        "step_time_ratio": 0.94,
        "tokens_per_s_ratio": 1.06,
        "peak_memory_ratio": 0.97,
        "forecast": {
            "delta_rel": delta * 0.7,
            "interval": [delta * 0.2, delta * 1.3],
            "probability": 0.91,
        },
        "next": {"steps": 2000, "cost_s": 1500, "what": "finish the baseline's curve"},
        "would_change": [
            "A speed ratio above 0.91 at 2,000 steps would turn the answer.",
            "A baseline that overfits inside the plan would favour the candidate.",
        ],
        **more,
    }


def screen_verdict(**more):
    return {
        "verdict": "keep",
        "recommended": "layernorm",
        "criterion": "best_checkpoint",
        "headline": "Keep LayerNorm: within this plan neither DyT nor Derf catches up with it.",
        "summary": [
            "DyT reaches a training loss 1.8 times later than LayerNorm on the learning-rate clock, and the plan ends before that gap closes.",
            "Derf is within the noise of two seeds at the best checkpoint.",
        ],
        "plan": {
            "steps": 40_000,
            "tokens": 655_360_000,
            "unique_tokens": 10_000_000,
            "epochs": 65.5,
            "tokens_per_parameter": 0.93,
            "parameter_convention": "params_no_positions",
            "schedule": "cosine",
            "lr": 0.001,
            "s1_share": 0.019,
            "calibration_steps": 500,
            "assumed": True,
        },
        "baseline": {
            "arm": "layernorm",
            "phase": "overfitting",
            "phase_reason": "validation loss has risen from 1.706 at step 350 to 1.742",
            "plateau_exit_step": 125,
            "val_loss": 1.742,
            "best_val_loss": 1.706,
            "best_step": 350,
        },
        "candidates": [
            candidate("dyt:paper", 0.031, verdict="keep"),
            candidate(
                "derf", 0.004, verdict="undecided", why="the interval holds zero at both endpoints"
            ),
        ],
        "rules": [
            {
                "name": "tokens per parameter below 2",
                "says": True,
                "record": "9 of 12 cells in-sample (47-91 %)",
            },
            {"name": "always keep", "says": False, "record": "7 of 12 cells (32-81 %)"},
            {
                "name": "saturation above 0.43",
                "says": None,
                "record": "no record: no cell has the facts it needs",
            },
        ],
        "cost": {"spent_s": 742, "at_stake_s": 198_000, "spent_share": 742 / 198_000},
        "notes": [
            "Saturation is measured at step 500; the published values are from the end of training."
        ],
        **more,
    }


@functools.cache
def screen_records(arms=tuple(ARMS), seeds=(0, 1)):
    rows = [row for arm in arms for seed in seeds for row in whole_records(arm, seed)]
    squashing = [arm for arm in arms if arm != "layernorm"]
    return rows + [row for arm in squashing for seed in seeds for row in site_records(arm, seed)]


@pytest.fixture
def screen():
    """A finished screen of two candidates: manifest, records, verdict."""
    return screen_manifest(), list(screen_records()), screen_verdict()


@pytest.fixture
def train():
    """A finished training of one arm, whose records name none: manifest, records, no verdict."""
    rows = [*whole_records("dyt:paper", 0), *site_records("dyt:paper", 0)]
    rows = [Record(**{**{n: getattr(r, n) for n in Record.__slots__}, "arm": None}) for r in rows]
    asked = {"asked": {"kind": "train"}, "arms": {"dyt:paper": {**ARMS["dyt:paper"], "role": None}}}
    return {**screen_manifest(seeds=(0,)), **asked}, rows, None
