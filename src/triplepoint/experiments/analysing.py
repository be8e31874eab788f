"""A checkpoint under the glass: has it generalised, could it, when, and what would the end look like?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from triplepoint.errors import DataError
from triplepoint.experiments.embeddings import EMBEDDING_DEFINITIONS, EmbeddingWatch, with_fourier
from triplepoint.experiments.folders import GrokRun, load_run, open_run
from triplepoint.experiments.specs import first_layer
from triplepoint.experiments.subjects import Subject
from triplepoint.experiments.training import TWO_LAYER, embedding_table
from triplepoint.grokking import (
    euler,
    excluded_logits,
    fast_forward,
    off_manifold_distance,
    restricted_logits,
    simulate,
    slow_clock,
    tangent_projection,
    will_it_grok,
)
from triplepoint.grokking.ablation import key_frequencies, table_loss
from triplepoint.grokking.drift import singular_value_range
from triplepoint.grokking.forecast import forecast_grokking
from triplepoint.grokking.laws import GrokFacts
from triplepoint.grokking.linearisation import stack
from triplepoint.grokking.representation import frequency_power
from triplepoint.monitoring import GrokMonitor, Part, definitions
from triplepoint.records import Record

SCOPE = "One checkpoint. What lies ahead of it is computed for bias-free two-layer nets with squared error only."
LAM = 1e-6
"""Ridge of what is computed ahead: far below the kernel's smallest eigenvalue, and safe where inputs repeat."""
AHEAD = 6.0
"""Slow time that the isolated flow is followed for: a net that needs more is reported as censored."""
ETA = 5e-3
"""Its step: ends at the same slow time as the paper's 1e-3, five times as fast."""

DEFINITIONS = {
    **definitions("mse"),
    "off_manifold_distance": {
        "definition": "||J^+ (F - y)||: distance from the zero-loss set to first order",
        "unit": "||theta||",
        "source": "triplepoint",
    },
    "restricted_loss": {
        "definition": "mean squared error per pair over the whole table, with only the key frequencies left in the outputs",
        "unit": "sum over outputs",
        "source": "arXiv 2301.05217",
    },
    "excluded_loss": {
        "definition": "mean squared error per training pair, with the key frequencies taken out of the outputs",
        "unit": "sum over outputs",
        "source": "arXiv 2301.05217",
    },
}


def analyse(
    path: Path, subject: Subject, *, shuffles: int = 5
) -> tuple[GrokRun, dict[str, object]]:
    """Measure a checkpoint into a run folder.

    Args:
        path: The run folder.
        subject: From ``subject_of``.
        shuffles: Permutations of the labels for the question whether the task can generalise.

    Returns:
        The run, and what was found: ``test_accuracy``, ``refit_test_accuracy``, ``complexity``, ``norm_sq``,
        ``tau``, ``sigma_min``, ``off_manifold_distance``, ``fast_forward``, ``will_it_grok``, ``forecast``; None
        where a part does not apply.
    """
    asked = {
        "command": "analyse", "weights": subject.digest, "step": subject.step,
        "task": dataclasses.asdict(subject.spec.task), "loss": subject.spec.loss, "shuffles": shuffles,
    }  # fmt: skip
    with open_run(path, asked) as run:
        if run is not None:
            circles = EmbeddingWatch(subject.spec.task.residues)
            monitor = _monitor(subject)
            with monitor:
                records = [r for r in monitor.evaluate(subject.step) if r.metric not in EMBEDDING_DEFINITIONS]  # fmt: skip
            records += circles.look(subject.step, embedding_table(subject.model)())
            records += _manifold(subject, monitor)
            records += _ablation(subject)
            run.folder.rewind(0)
            run.folder.append(records)
            facts = monitor.facts()
            ahead, whether = _ahead_if_any(subject, shuffles, records)
            run.finish(
                {
                    "scope": SCOPE,
                    "task": subject.task.name,
                    "model": {"name": subject.spec.model},
                    "samples": _sizes(subject),
                    "applies": [*_measured_here(facts["applies"], subject), whether._asdict()],
                    "times": subject.times,
                    "ahead": ahead,
                    "metrics": {**facts["metrics"], **DEFINITIONS},
                },
                circles.arrays(),
            )
    done = load_run(path)
    return done, _found(done)


def _monitor(subject: Subject) -> GrokMonitor:
    spec = subject.spec
    training, held_out = spec.samples(subject.task)
    clock = None
    if subject.trained:
        clock = slow_clock(lr=spec.lr, weight_decay=spec.weight_decay, optimizer="adamw")
    dtype = next(subject.model.parameters()).dtype
    training, held_out = (
        tuple(x.to(dtype) if x.is_floating_point() else x for x in pair)
        for pair in (training, held_out)
    )
    return GrokMonitor(
        subject.model, train=training, validation=held_out, clock=clock, loss=spec.loss,
        # the manifold part is asked about, but there is one moment only and no window of updates
        diagnose_every=max(1000, subject.step + 1),
    )  # fmt: skip


def _sizes(subject: Subject) -> dict[str, int]:
    return {"train": int(subject.task.train.sum()), "val": int(subject.task.test.sum())}


def _row(metric: str, value: float, step: int) -> Record:
    return Record(metric=metric, value=value, unit=DEFINITIONS[metric]["unit"], step=step)


def _manifold(subject: Subject, monitor: GrokMonitor) -> list[Record]:
    """Where the net stands beside its zero-loss manifold; nothing where it has none."""
    applies = next(p for p in monitor.applies() if p.part == "zero-loss manifold").applies
    if not applies or subject.spec.loss != "mse" or subject.spec.model != TWO_LAYER:
        return []
    X, Y = subject.task.train_set
    model = subject.model.double()
    drift = tangent_projection(model, X)
    lin = stack(model, X).at()
    theta = lin.theta.square().sum()
    values = {
        "tau": float(drift.tangent.square().sum() / theta),
        "sigma_min": singular_value_range(lin)[0],
        "off_manifold_distance": off_manifold_distance(lin, Y),
    }
    return [_row(metric, value, subject.step) for metric, value in values.items()]


def _ablation(subject: Subject) -> list[Record]:
    """Restricted and excluded loss, for addition by a two-layer net."""
    spec = subject.spec
    if spec.task.operation != "add" or spec.model != TWO_LAYER or spec.loss != "mse":
        return []
    p = spec.task.p
    one = torch.eye(p, dtype=torch.float64)
    with torch.no_grad():
        X = one[:, None] + one[None] if subject.task.X.shape[1] == p else _ordered(one)
        logits = subject.model.double()(X.flatten(0, 1)).unflatten(0, (p, p))
    labels = (torch.arange(p)[:, None] + torch.arange(p)) % p
    key = key_frequencies(frequency_power(spec.task.residues(subject.W1))[1:])
    trained = torch.zeros(p, p, dtype=torch.bool)
    a, b = subject.task.tokens[subject.task.train, :2].T
    trained[a, b] = True
    if subject.task.X.shape[1] == p:
        trained[b, a] = True
    restricted = table_loss(restricted_logits(logits, key), labels, squared=True)
    excluded = table_loss(excluded_logits(logits, key), labels, where=trained, squared=True)
    return [
        _row("restricted_loss", restricted, subject.step),
        _row("excluded_loss", excluded, subject.step),
    ]


def _ordered(one: Tensor) -> Tensor:
    p = len(one)
    return torch.cat([one[:, None].expand(p, p, p), one[None].expand(p, p, p)], dim=-1)


def _measured_here(parts: list[dict], subject: Subject) -> list[dict]:
    """What applies to one checkpoint: of a deeper net the manifold is not looked at."""
    parts = with_fourier(parts, subject.spec.task)
    if subject.spec.model == TWO_LAYER or subject.spec.loss != "mse":
        return parts
    part = Part("zero-loss manifold", False, "of a deeper net grok train measures it on the way")
    return [*(p for p in parts if p["part"] != part.part), part._asdict()]


def _ahead_if_any(
    subject: Subject, shuffles: int, records: list[Record]
) -> tuple[dict[str, object] | None, Part]:
    """What lies ahead, or None; and whether it applies, with the reason."""
    part = "what lies ahead"
    if subject.W1 is None or subject.spec.loss != "mse":
        return None, Part(part, False, "it is about bias-free two-layer nets with squared error")
    try:
        return _ahead(subject, shuffles, records), Part(part, True, "two bias-free layers and squared error")  # fmt: skip
    except DataError as error:  # the layer is too narrow, or has collapsed
        return None, Part(part, False, str(error).splitlines()[0].removesuffix("."))


def _ahead(subject: Subject, shuffles: int, records: list[Record]) -> dict[str, object]:
    """What lies ahead of a two-layer net: the end, whether it generalises, and when."""
    (X, Y), W1, activation = subject.task.train_set, subject.W1, subject.spec.activation
    end = fast_forward(X, Y, W1, lam=LAM, activation=activation, test=subject.task.test_set)
    # a question about the task: its threshold was fitted on fresh layers, and a trained one favours the true labels
    fresh = first_layer(subject.task, W1.shape[1], std=None, seed=subject.spec.task.seed)
    outlook = will_it_grok(X, Y, fresh, lam=LAM, activation=activation, shuffles=shuffles)
    t99 = _isolated_time(subject)
    forecast = forecast_grokking(_facts(subject, t99, records))
    return {
        "fast_forward": {
            "test_accuracy": end.test_accuracy,
            "gradients": end.gradients,
            "complexity": end.complexity,
        },
        "will_it_grok": {
            "answer": outlook.answer,
            "ratio": outlook.ratio,
            "spread": outlook.spread,
            "threshold": outlook.threshold,
            "words": outlook.words,
        },
        "isolated_slow_time_to_99": t99,
        "forecast": {
            "steps": forecast.interval,
            "words": forecast.words,
            "laws": list(forecast.intervals),
            "excluded": forecast.excluded,
        },
    }


def _isolated_time(subject: Subject) -> float | None:
    """Slow time that the isolated flow takes from here to 99 % held-out accuracy; None beyond ``AHEAD``."""
    reached: list[float] = []

    def until_reached(field, W1: Tensor, duration: float) -> Iterator:  # noqa: ANN001
        for visit in euler(field, W1, duration, eta=ETA):
            yield visit
            if reached:
                return

    def see(point) -> None:  # noqa: ANN001
        if point.test_accuracy >= 0.99:
            reached.append(point.t)

    simulate(
        subject.W1, *subject.task.train_set, lam=LAM, activation=subject.spec.activation,
        duration=AHEAD, integrator=until_reached, test=subject.task.test_set, every=5, watch=see,
    )  # fmt: skip
    return reached[0] if reached else None


def _facts(subject: Subject, t99: float | None, records: list[Record]) -> GrokFacts:
    spec, here = subject.spec, {r.metric: r.value for r in records if r.site is None}
    known = dict(loss="mse", model="two_layer", layernorm=False, hidden=len(subject.W1[0]),
                 activation=spec.activation, fraction=spec.task.fraction)  # fmt: skip
    if spec.task.operation in ("add", "sub", "mul", "div", "sum_squares"):
        known |= {"task": "modular", "p": spec.task.p}
    if subject.trained:
        memorised = (subject.times.get("T_mem") or {}).get("step")
        known |= {"optimizer": "adamw", "lr": spec.lr, "weight_decay": spec.weight_decay or None,
                  "step": subject.step, "T_mem": memorised}  # fmt: skip
    measured = {"C_now": "complexity", "V_now": "norm_sq", "tau": "tau"}
    known |= {fact: here.get(metric) or None for fact, metric in measured.items()}
    return GrokFacts(**known, t99_iso=t99 or None)


def _found(run: GrokRun) -> dict[str, object]:
    names = {
        "train_accuracy": "train_accuracy",
        "test_accuracy": "val_accuracy",
        "refit_test_accuracy": "refit_val_accuracy",
        **{name: name for name in (
            "complexity", "norm_sq", "head_distance", "tau", "sigma_min", "off_manifold_distance",
            "restricted_loss", "excluded_loss", "unit_concentration", "effective_frequencies",
        )},
    }  # fmt: skip
    ahead = run.facts["ahead"] or {}
    return {
        "run": str(run.path),
        "task": run.facts["task"],
        **{name: run.last(metric) for name, metric in names.items()},
        **{name: ahead.get(name) for name in ("fast_forward", "will_it_grok", "isolated_slow_time_to_99", "forecast")},
        "applies": run.facts["applies"],
    }  # fmt: skip
