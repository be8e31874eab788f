"""Metrics of the norm sites of one live run, in any training loop."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from triplepoint import measurement, training
from triplepoint.errors import PlanError, unknown_name
from triplepoint.families.wrappers import plain_path, unwrapped
from triplepoint.metrics import METRICS, Metric, State
from triplepoint.monitoring.judging import JUDGED, LossHistory
from triplepoint.monitoring.ranks import States, sum_over_ranks, whole
from triplepoint.monitoring.sampling import Sampler, is_compiled
from triplepoint.observation import saturation_of, sites_of
from triplepoint.ops import NormOp
from triplepoint.phases import Judgement
from triplepoint.records import Record, from_line, to_line

DEFINITIONS = {**training.DEFINITIONS, **measurement.DEFINITIONS}
READINGS = ("alpha",)
"""What is read off the ops themselves, beside ``METRICS``."""
BUDGET_BYTES = 2**28
"""256 MiB: under a tenth of what AdamW's two moments take for 350 million parameters in float32."""


class Monitor:
    """Watch a run from inside: metrics of its norm sites on the training batches, and its phase.

    Nothing is computed twice and no activation is kept: during sampled steps hooks count what passes through the
    sites in training mode while the loop runs; between them the model has no hook at all. All micro-batches of an
    optimiser step are one value, over all their elements. Not counted are a pass in eval mode (where PyTorch's
    fused encoder layers would bypass the norms as well), the recomputation of a checkpointed layer, and copies of
    the model. Weights, gradients, modes and random numbers stay as they would be without it.

    *Compiled models.* A sampled step runs eagerly, at eager speed and rounding, and with eager dropout; the others
    run as compiled, without a further graph break or recompilation. So give ``every`` a value above 1 there.

    *Several processes.* States are added over all ranks, once, so that measured values are the same on each rank;
    every rank must observe the same steps. Losses are recorded as each rank gives them. Write the records of one.

    Not the fixed windows of :class:`triplepoint.measurement.Probe`: batches differ from step to step, so two
    runs are compared by their trends, not by single values.

    Args:
        model: The model; DDP, FSDP2, PEFT and ``torch.compile`` are looked through, and sites go by the paths of
            the model inside.
        metrics: Names in ``METRICS``, or ``alpha``. Metrics of activations are measured at every norm or norm
            replacement; those of pre-activations where something is squashed; those of logits where ``observe``
            is given some; ``alpha`` is read where there is one.
        every: Sample the batches of every so many steps.
        budget_bytes: What the sums of all sites may take; a metric at a site that would exceed it is left out, see
            :attr:`skipped`. ``saturation`` takes some 60 bytes a site, ``activation_rank`` 8 width^2.
        plateau: Cross-entropy of the unigram distribution, nats per token, if the phase is to know it.
        planned_steps: Length of the planned run, for the phase; None where it is open.
        dtype: What the run computes in, for ``saturation_exact``; by default that of the first parameter.
        labels: ``arm`` and ``seed`` of the records.

    Raises:
        UnknownNameError: If there is no metric of a name.
        PlanError: If ``every`` is below 1, or the budget below 0.

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
        metrics: str | Sequence[str] = ("saturation", "input_rms", "alpha"),
        *,
        every: int = 1,
        budget_bytes: int = BUDGET_BYTES,
        plateau: float | None = None,
        planned_steps: int | None = None,
        dtype: torch.dtype | None = None,
        **labels: object,
    ):
        if every < 1:
            raise PlanError(f"every is {every}.\nGive a number of steps, at least 1.")
        if budget_bytes < 0:
            raise PlanError(f"budget_bytes is {budget_bytes}.\nGive a number of bytes, e.g. 2**28.")
        metrics = (metrics,) if isinstance(metrics, str) else metrics
        for name in metrics:
            if name not in METRICS and name not in READINGS:
                raise unknown_name("metric", name, [*METRICS, *READINGS])
        self._model, self._metrics, self._every, self._labels = model, tuple(metrics), every, labels
        self._options = {
            "budget_bytes": budget_bytes, "plateau": plateau, "planned_steps": planned_steps, "dtype": dtype,
        }  # fmt: skip
        self._wanted = [METRICS[name] for name in metrics if name in METRICS]
        inner = unwrapped(model)
        first = next(inner.parameters(), torch.empty(0))
        self._device = first.device
        sites = {plain_path(path): module for path, module in sites_of(inner).items()}
        self._alphas = [
            (path, op) for path, op in sites.items() if "alpha" in metrics and hasattr(op, "alpha")
        ]
        self._sites = {
            path: (module, kept)
            for path, module in sites.items()
            if (kept := self._metrics_at(module, dtype or first.dtype))
        }
        self._sampler = Sampler(self._sites, budget=budget_bytes)
        self._history = LossHistory(plateau=plateau, planned_steps=planned_steps)
        self._attached = self._warned = False
        self._step: int | None = None
        self._records: list[Record] = []

    def _metrics_at(self, module: nn.Module, dtype: torch.dtype) -> list[Metric]:
        found = [m for m in self._wanted if m.reads == "activation"]
        for metric in self._wanted:
            if metric.reads == "pre_activation" and isinstance(module, NormOp):
                own = saturation_of(module, dtype=dtype) if metric.name == "saturation" else metric
                found += [own] if own else []
        return found

    @property
    def model(self) -> nn.Module:
        """What is watched, as it was given."""
        return self._model

    @property
    def phase(self) -> Judgement | None:
        """What :meth:`observe` last said."""
        return self._history.phase

    @property
    def is_sampling(self) -> bool:
        """Whether the step that runs now is sampled."""
        return self._sampler.is_on

    @property
    def skipped(self) -> dict[tuple[str, str], str]:
        """(site, metric) -> why it is not measured there: the byte budget."""
        return dict(self._sampler.skipped)

    # -- the four methods ------------------------------------------------------------------------------

    def attach(self) -> Monitor:
        """Begin to sample: with the next step, or after a resume with the next that is due."""
        if not self._attached:
            if self._every == 1 and is_compiled(self._model):
                warnings.warn(
                    "The model is compiled, but a sampled step runs eagerly, and with every=1 that is each step.\n"
                    "Pass Monitor(..., every=10) or more.",
                    stacklevel=2,
                )
            self._attached = True
            self._sample_next()
        return self

    def observe(
        self, step: int, *, logits: Tensor | None = None, **losses: float
    ) -> Judgement | None:
        """Take down what passed since the last call. Call it after every optimiser step.

        It may be called again at the same step, with a loss that is known only then.

        Args:
            step: Optimiser steps done.
            logits: ``[..., classes]`` of this step, for the metrics that read logits.
            **losses: ``train_loss``, ``val_loss``, ``train_accuracy``, ... where known at this step; recorded as
                they are, under their names.

        Returns:
            The phase, as far as the losses so far tell it: from accuracies memorised or generalising, from
            ``val_loss`` as of a single arm, from ``train_loss`` only that it diverged. None where they do not.
        """
        # often still the tensor that was differentiated
        losses = {k: float(v.detach() if isinstance(v, Tensor) else v) for k, v in losses.items()}
        self._records += [self._record(k, v, step) for k, v in losses.items()]
        sampled = self._sampler.is_on and step != self._step
        seen: States = self._sampler.take()
        if logits is not None:
            seen[None] = {m.name: m.update(logits) for m in self._wanted if m.reads == "logits"}
        if sampled or seen:
            seen = sum_over_ranks(seen, device=self._device)
            self._record_states(seen, step)
        if sampled:
            self._record_alphas(step)
        if step != self._step:
            again = sampled and self._sites and not seen and self._is_first_miss(step)
            self._step = step
            if self._attached and not again:
                self._sample_next()
        return self._history.add(step, losses)

    def collect(self) -> list[Record]:
        """Hand over the records since the last call; each is handed over once."""
        records, self._records = self._records, []
        return records

    def detach(self) -> None:
        """Remove the hooks and what they counted. What was recorded can still be collected."""
        self._attached = False
        self._sampler.stop()
        self._sampler.take()

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
            about = here + self._where_skipped(metric.name)
            for name, words in (known or {metric.name: own}).items():
                found[name] = {**words, "definition": words["definition"] + about}
        return found | {name: DEFINITIONS[name] for name in READINGS if name in self._metrics}

    def _where_skipped(self, metric: str) -> str:
        sites = [site for site, name in self._sampler.skipped if name == metric]
        if not sites:
            return ""
        reason = self._sampler.skipped[sites[0], metric]
        return (
            f"; not at {len(sites)} of {len(self._sites)} sites, the first '{sites[0]}': {reason}"
        )

    # -- sampling --------------------------------------------------------------------------------------

    def _sample_next(self) -> None:
        if self._step is None or (self._step + 1) % self._every == 0:
            self._sampler.start()
        else:
            self._sampler.stop()

    def _is_first_miss(self, step: int) -> bool:
        """Handle a sampled step at which nothing was seen: whether the next one is to be sampled in its place."""
        if self._step is None or self._sampler.is_blind:
            self._sampler.stop()  # the model was compiled after the hooks were there, or has not run yet
            self._sampler.start()
            return True
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"Nothing passed through the {len(self._sites)} sites of the monitor in training mode up to step "
                f"{step}.\nCall model.train(), and give Monitor the very model that is trained: not a copy, not one "
                "whose norms were swapped since, and not one that runs scripted, exported or in DataParallel.",
                stacklevel=3,
            )
        return False

    def _record_states(self, seen: States, step: int) -> None:
        sites = {site: metrics for site, (_, metrics) in self._sites.items()} | {None: self._wanted}
        for site, metrics in sites.items():
            for metric in metrics:
                if metric.name in seen.get(site, {}):
                    state = seen[site][metric.name]
                    self._records += self._computed(metric, state, step, site)

    def _record_alphas(self, step: int) -> None:
        for site, op in self._alphas:
            self._records.append(self._record("alpha", float(whole(op.alpha)), step, site=site))

    def _computed(self, metric: Metric, state: State, step: int, site: str | None) -> list[Record]:
        n = int(state["n"]) if "n" in state else None
        values = metric.compute(state)
        unit = metric.unit
        return [self._record(k, v, step, site=site, n=n, unit=unit) for k, v in values.items()]

    def _record(self, metric: str, value: float, step: int, **more: object) -> Record:
        unit = more.pop("unit", None) or DEFINITIONS.get(metric, {}).get("unit", "")
        return Record(metric=metric, value=value, unit=unit, step=step, **self._labels, **more)

    # -- across a restart ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, object]:
        """Return what a restart needs, as ``torch.save`` takes it: step, losses, phase, records not collected.

        Take it after :meth:`observe`, between two steps.
        """
        lines = [to_line(record) for record in self._records]
        return {"step": self._step, "records": lines, **self._history.state()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Take up what :meth:`state_dict` returned; the records go on as in a run without interruption."""
        self._step = state["step"]
        self._records = [from_line(line) for line in state["records"]]
        self._history.load_state(state)
        self._sampler.take()
        if self._attached:
            self._sample_next()

    def replay(self, step: int, records: Iterable[Record]) -> None:
        """Take up a run at ``step`` from the records that it has written so far, where there is no state.

        Args:
            step: Optimiser steps done.
            records: In the order of their steps.
        """
        self._step = step
        of_run = (r for r in records if r.site is None)
        for told, rows in itertools.groupby(of_run, key=lambda record: record.step):
            self._history.add(told, {row.metric: row.value for row in rows if row.metric in JUDGED})
        if self._attached:
            self._sample_next()

    def __getstate__(self) -> dict[str, object]:
        options = {**self._options, "every": self._every, **self._labels}
        made = {"model": self._model, "metrics": self._metrics, **options}
        return {"made": made, "state": self.state_dict()}

    def __setstate__(self, pickled: Mapping[str, dict]) -> None:
        """A copy or a pickle is detached."""
        self.__init__(**pickled["made"])
        self.load_state_dict(pickled["state"])
