"""Metrics of the norm sites of one live run, in any plain training loop."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from triplepoint import measurement, training
from triplepoint.capture import Capture
from triplepoint.errors import PlanError, unknown_name
from triplepoint.metrics import METRICS, Metric, State, add_states
from triplepoint.observation import saturation_of, sites_of
from triplepoint.ops import NormOp
from triplepoint.phases import Judgement, diverged_step, judge_arm, judge_grokking
from triplepoint.records import Record

DEFINITIONS = {**training.DEFINITIONS, **measurement.DEFINITIONS}


class Monitor:
    """Watch a run from inside: metrics of its norm sites on the training batches, and its phase.

    Nothing is computed twice and nothing is kept: at sampled steps hooks count what passes through the sites in
    training mode while the loop runs; between them they are off. An evaluation in eval mode, or the
    recomputation of a checkpointed layer, is not counted. Weights, gradients, modes and random numbers stay as
    they would be without it.

    Not the fixed windows of :class:`triplepoint.measurement.Probe`: batches differ from step to step, so two
    runs are compared by their trends, not by single values.

    Args:
        model: The model, unwrapped.
        metrics: Names in ``METRICS``. Those of activations are measured at every norm or norm replacement; those
            of pre-activations where something is squashed; those of logits where ``observe`` is given some.
        every: Sample the batches of every so many steps.
        plateau: Cross-entropy of the unigram distribution, nats per token, if the phase is to know it.
        planned_steps: Length of the planned run, for the phase; None where it is open.
        dtype: What the run computes in, for ``saturation_exact``; by default that of the first parameter.
        labels: ``arm`` and ``seed`` of the records.

    Raises:
        UnknownNameError: If there is no metric of a name.
        PlanError: If ``every`` is below 1.

    Example:
        >>> from triplepoint.ops import DyT
        >>> model = nn.Sequential(DyT(2, alpha=1.0), nn.Linear(2, 1))
        >>> with Monitor(model, metrics=("input_rms",)) as monitor:
        ...     _ = model(torch.tensor([[3.0, 4.0]]))
        ...     _ = monitor.observe(1, train_loss=0.5)
        >>> [(r.metric, r.site, round(r.value, 4)) for r in monitor.collect()]
        [('train_loss', None, 0.5), ('input_rms', '0', 3.5355)]
    """

    def __init__(
        self,
        model: nn.Module,
        metrics: Sequence[str] = ("saturation", "input_rms"),
        *,
        every: int = 1,
        plateau: float | None = None,
        planned_steps: int | None = None,
        dtype: torch.dtype | None = None,
        **labels: object,
    ):
        if every < 1:
            raise PlanError(f"every is {every}.\nGive a number of steps, at least 1.")
        for name in metrics:
            if name not in METRICS:
                raise unknown_name("metric", name, METRICS)
        self._wanted = [METRICS[name] for name in metrics]
        self._every, self._plateau, self._planned = every, plateau, planned_steps
        self._labels = labels
        dtype = dtype or next((p.dtype for p in model.parameters()), torch.float32)
        self._sites = {
            path: (module, kept)
            for path, module in sites_of(model).items()
            if (kept := self._metrics_at(module, dtype))
        }
        self._capture: Capture | None = None
        self._seen: dict[str, dict[str, State]] = {}
        self._records: list[Record] = []
        self._series: dict[str, tuple[list[int], list[float]]] = {}
        self.phase: Judgement | None = None
        """What :meth:`observe` last said."""

    def _metrics_at(self, module: nn.Module, dtype: torch.dtype) -> list[Metric]:
        found = [m for m in self._wanted if m.reads == "activation"]
        for metric in self._wanted:
            if metric.reads == "pre_activation" and isinstance(module, NormOp):
                own = saturation_of(module, dtype=dtype) if metric.name == "saturation" else metric
                found += [own] if own else []
        return found

    # -- the four methods ------------------------------------------------------------------------------

    def attach(self) -> Monitor:
        """Register the hooks; the next step is sampled. Does nothing if they are there."""
        if self._capture is None:
            modules = {path: module for path, (module, _) in self._sites.items()}
            self._capture = Capture(modules, self._see)
        return self

    def observe(
        self, step: int, *, logits: Tensor | None = None, **losses: float
    ) -> Judgement | None:
        """Take down what passed since the last call. Call it after every optimiser step.

        Args:
            step: Optimiser steps done.
            logits: ``[..., classes]`` of this step, for the metrics that read logits.
            **losses: ``train_loss``, ``val_loss``, ``train_accuracy``, ... where known at this step; recorded as
                they are, under their names.

        Returns:
            The phase, as far as the losses so far tell it: from accuracies memorised or generalising, from
            ``val_loss`` as of a single arm, from ``train_loss`` only that it diverged. None where they do not.
        """
        for name, value in losses.items():
            steps, values = self._series.setdefault(name, ([], []))
            steps.append(step)
            values.append(float(value))
            self._records.append(self._record(name, float(value), step))
        for site, states in self._seen.items():
            kept = {m.name: m for m in self._sites[site][1]}
            for name, state in states.items():
                self._records += self._computed(kept[name], state, step, site)
        self._seen = {}
        if logits is not None:
            for metric in self._wanted:
                if metric.reads == "logits":
                    self._records += self._computed(metric, metric.update(logits), step)
        if self._capture is not None:
            self._capture.on = (step + 1) % self._every == 0
        self.phase = self._judge(step, losses)
        return self.phase

    def collect(self) -> list[Record]:
        """Hand over the records since the last call; each is handed over once."""
        records, self._records = self._records, []
        return records

    def detach(self) -> None:
        """Remove the hooks. What was recorded can still be collected."""
        if self._capture is not None:
            self._capture.close()
            self._capture = None

    def __enter__(self) -> Monitor:
        return self.attach()

    def __exit__(self, *_: object) -> None:
        self.detach()

    def definitions(self) -> dict[str, dict[str, str]]:
        """Return definition, unit and source of what this monitor records, for a manifest."""
        here = "; on the sampled training batches since the last record"
        found = {}
        for metric in self._wanted:
            own = {"definition": metric.definition, "unit": metric.unit, "source": metric.source}
            known = {n: d for n, d in DEFINITIONS.items() if n.split("@")[0] == metric.name}
            found |= known or {metric.name: own}
        return {n: {**d, "definition": d["definition"] + here} for n, d in found.items()}

    # -- counting --------------------------------------------------------------------------------------

    def _see(self, site: str, module: nn.Module, x: Tensor) -> None:
        own = (
            module is self._sites[site][0]
        )  # a copy of the model, an averaged one say, has the hooks as well
        if not own or not module.training or _in_backward():
            return
        seen = self._seen.setdefault(site, {})
        for metric in self._sites[site][1]:
            z = module.pre_activation(x) if metric.reads == "pre_activation" else x
            if z is not None:
                seen[metric.name] = add_states(seen.get(metric.name), metric.update(z))

    def _computed(
        self, metric: Metric, state: State, step: int, site: str | None = None
    ) -> list[Record]:
        n = int(state["n"]) if "n" in state else None
        values = metric.compute(state)
        unit = metric.unit
        return [self._record(k, v, step, site=site, n=n, unit=unit) for k, v in values.items()]

    def _record(self, metric: str, value: float, step: int, **more: object) -> Record:
        unit = more.pop("unit", None) or DEFINITIONS.get(metric, {}).get("unit", "")
        return Record(metric=metric, value=value, unit=unit, step=step, **self._labels, **more)

    # -- the phase -------------------------------------------------------------------------------------

    def _judge(self, step: int, losses: dict[str, float]) -> Judgement | None:
        if any(not math.isfinite(value) for value in losses.values()):
            return Judgement("diverged", f"the loss is not finite at step {step}")
        if not losses:
            return self.phase
        steps, train = self._series.get("train_accuracy", ([], []))
        own_steps, val = self._series.get("val_accuracy", ([], []))
        if steps and own_steps == steps:
            return judge_grokking(steps=steps, train_accuracies=train, val_accuracies=val)
        if "val_loss" not in self._series:
            return None
        steps, val = self._series["val_loss"]
        return judge_arm(
            steps=steps,
            val_losses=val,
            plateau=self._plateau,
            planned_steps=self._planned or math.inf,
            diverged_at=self._diverged_at(),
        )

    def _diverged_at(self) -> int | None:
        if self._plateau is None or "train_loss" not in self._series:
            return None
        steps, train = self._series["train_loss"]
        return diverged_step(steps, train, self._plateau, warmup=0)


def _in_backward() -> bool:
    """Whether a layer is being recomputed for its gradient: its first pass has been counted."""
    # torch has no public name for it; its own checkpointing asks the same
    return torch._C._current_graph_task_id() != -1
