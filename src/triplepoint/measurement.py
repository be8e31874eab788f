"""Metric x site on a live model: fixed windows, and the training batches in between.

Two ways to look, never mixed in one number. On the *fixed windows* the model is in eval mode and every arm
and step sees the same text. On the *training batches* (metrics named ``batch_...``) nothing is computed
twice: the hooks count while the step runs, every ``every`` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from triplepoint.capture import Capture
from triplepoint.metrics import (
    METRICS,
    SATURATION_DEFINITIONS,
    Metric,
    State,
    add_states,
    saturation,
)
from triplepoint.metrics.saturation import THRESHOLDS
from triplepoint.objectives import Batch, Objective, length_of, slice_of, to_device
from triplepoint.observation import evaluating, saturation_of, sites_of
from triplepoint.records import Record

DEFINITIONS: dict[str, dict[str, str]] = {
    **{
        f"saturation@{t:g}": {
            "definition": METRICS["saturation"].definition.replace("> t", f"> {t:g}"),
            "unit": "share",
            "source": METRICS["saturation"].source,
        }
        for t in THRESHOLDS
    },
    **{
        name: {"definition": text, "unit": "share", "source": "arXiv 2604.23434, for any op"}
        for name, text in SATURATION_DEFINITIONS.items()
    },
    **{
        name: {
            "definition": METRICS[name].definition,
            "unit": METRICS[name].unit,
            "source": METRICS[name].source,
        }
        for name in ("input_rms", "logit_scale", "prediction_kl")
    },
    "batch_saturation@2": {
        "definition": "saturation@2 counted on the training batches sampled since the last record",
        "unit": "share",
        "source": "arXiv 2604.23434",
    },
    "alpha": {
        "definition": "the op's learnable slope at a site",
        "unit": "1",
        "source": "arXiv 2503.10622",
    },
    "alpha_drift": {
        "definition": "alpha minus its value at birth, at a site",
        "unit": "1",
        "source": "triplepoint",
    },
    "alpha_drift_std": {
        "definition": "standard deviation over sites of alpha - alpha(0); below 0.02 the alphas count as frozen",
        "unit": "1",
        "source": "triplepoint, after the collapsed runs of arXiv 2604.23434",
    },
    "site_grad_norm": {
        "definition": "norm of the loss gradient of a site's own parameters, mean over the sampled batches",
        "unit": "nats",
        "source": "triplepoint",
    },
    "update_ratio": {
        "definition": "norm of one step's change of the weights over their norm, by depth",
        "unit": "1",
        "source": "common practice; about 1e-3 is usual",
    },
}
"""What each metric is, in what unit and after whom: copied into the manifest of a run."""


class Probe:
    """Everything that is measured on one arm while it trains.

    Args:
        model: The model, unwrapped and newly built: its alphas now are the alphas at birth.
        objective: The loss.
        windows: Name -> batch of fixed windows. ``val`` and ``train`` are evaluated at each evaluation,
            ``report`` only by :meth:`report`.
        every: Sample the training batches every so many steps; 0 for never.
        rows: How many windows go through the model at once.
        dtype: The dtype that the run computes in, for ``saturation_exact``.
        labels: ``arm`` and ``seed`` of the records.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        windows: Mapping[str, Batch],
        *,
        every: int = 10,
        rows: int = 8,
        dtype: torch.dtype = torch.float32,
        **labels: object,
    ):
        self._model, self._objective, self._windows = model, objective, dict(windows)
        self._every, self._rows, self._labels = every, rows, labels
        self._sites = sites_of(model)
        self._alphas = {path: op.alpha for path, op in self._sites.items() if hasattr(op, "alpha")}
        self._born = {path: float(alpha.detach()) for path, alpha in self._alphas.items()}
        self._saturation = {
            p: m for p, op in self._sites.items() if (m := saturation_of(op, dtype=dtype))
        }
        self._batch_saturation = saturation({"@2": 2.0})
        self._seen: dict[str, dict[str, State]] = {}
        self._batch: dict[str, State] = {}
        self._capture = Capture(self._sites, self._see)
        self._capture.on = False
        self._in_batch = False

    def _see(self, site: str, module: nn.Module, x: Tensor) -> None:
        if self._in_batch:
            if site in self._saturation:
                self._add_batch(site, self._batch_saturation.update(module.pre_activation(x)))
            return
        seen = self._seen.setdefault(site, {})
        if site in self._saturation:
            state = self._saturation[site].update(module.pre_activation(x))
            seen["saturation"] = add_states(seen.get("saturation"), state)
        seen["input_rms"] = add_states(seen.get("input_rms"), METRICS["input_rms"].update(x))

    def _add_batch(self, site: str, state: State) -> None:
        self._batch[site] = {
            **self._batch.get(site, {}),
            **add_states(_part(self._batch.get(site), state), state),
        }

    # -- during a training step ------------------------------------------------------------------------

    def before_step(self, step: int) -> None:
        """Switch the hooks on if this step is sampled."""
        self._in_batch = self._capture.on = bool(self._every) and step % self._every == 0

    def after_backward(self, step: int) -> None:
        """Take the sites' gradient norms of a sampled step, and switch the hooks off."""
        if not self._in_batch:
            return
        self._in_batch = self._capture.on = False
        for site, module in self._sites.items():
            gradients = [p.grad for p in module.parameters(recurse=False) if p.grad is not None]
            if gradients:
                norm = torch.nn.utils.get_total_norm(gradients).double()
                self._add_batch(site, {"grad": norm, "steps": torch.ones((), dtype=torch.float64)})

    def before_update(self) -> list[Tensor]:
        """Return copies of the parameters, for :meth:`update_records`."""
        return [p.detach().clone() for p in self._model.parameters()]

    def update_records(self, before: list[Tensor], step: int) -> list[Record]:
        """Return ``update_ratio`` by depth: the norm of the change over the norm before it."""
        groups: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for (name, now), old in zip(self._model.named_parameters(), before, strict=True):
            if now.ndim > 1:
                groups.setdefault(_depth(name), []).append((now.detach() - old, old))
        norm = torch.nn.utils.get_total_norm
        return [
            self._record("update_ratio", float(norm([c for c, _ in pairs]) / norm([o for _, o in pairs])), step, site=depth)
            for depth, pairs in groups.items()
        ]  # fmt: skip

    # -- at an evaluation ------------------------------------------------------------------------------

    def losses(self) -> dict[str, np.ndarray]:
        """Return ``val_loss`` and ``train_loss`` per window, and nothing else: for averaged weights."""
        with evaluating(self._model):
            return {f"{name}_loss": self._window_losses(name) for name in ("val", "train")}

    def report(self) -> np.ndarray | None:
        """Return the losses on the report windows, or None where there are none."""
        if "report" not in self._windows:
            return None
        with evaluating(self._model):
            return self._window_losses("report")

    def evaluate(self, step: int) -> tuple[dict[str, np.ndarray], list[Record]]:
        """Return the losses per window, and the records of everything else measured at ``step``.

        Sites are measured on the train windows, predictions on the validation windows.
        """
        self._seen = {}
        logits: dict[str, State] = {}

        def see_logits(z: Tensor) -> None:
            for name in ("logit_scale", "prediction_kl"):
                logits[name] = add_states(logits.get(name), METRICS[name].update(z))

        with evaluating(self._model):
            arrays = {"val_loss": self._window_losses("val", see_logits)}
            self._capture.on = True
            arrays["train_loss"] = self._window_losses("train")
            self._capture.on = False
        records = [
            *self._site_records(step),
            *self._alpha_records(step),
            *self._batch_records(step),
        ]
        for name, state in logits.items():
            records += self._computed(METRICS[name], state, step)
        return arrays, records

    def _window_losses(
        self, name: str, see_logits: Callable[[Tensor], None] | None = None
    ) -> np.ndarray:
        windows = self._windows[name]
        device = next(self._model.parameters()).device
        losses = []
        for start in range(0, length_of(windows), self._rows):
            # windows wait on the CPU, where there is room for them
            batch = to_device(slice_of(windows, start, start + self._rows), device)
            losses.append(self._objective.per_window(self._model, batch, see_logits).float().cpu())
        return torch.cat(losses).numpy()

    def _site_records(self, step: int) -> list[Record]:
        records = []
        for site, states in self._seen.items():
            if "saturation" in states:
                records += self._computed(self._saturation[site], states["saturation"], step, site)
            records += self._computed(METRICS["input_rms"], states["input_rms"], step, site)
        return records

    def _alpha_records(self, step: int) -> list[Record]:
        drift = {
            path: float(alpha.detach()) - self._born[path] for path, alpha in self._alphas.items()
        }
        records = []
        for path, change in drift.items():
            records.append(self._record("alpha", self._born[path] + change, step, site=path))
            records.append(self._record("alpha_drift", change, step, site=path))
        if drift:
            spread = float(np.std(list(drift.values())))
            records.append(self._record("alpha_drift_std", spread, step, n=len(drift)))
        return records

    def _batch_records(self, step: int) -> list[Record]:
        records = []
        for site, state in self._batch.items():
            if "n" in state:
                share = self._batch_saturation.compute(state)["saturation@2"]
                records.append(
                    self._record("batch_saturation@2", share, step, site=site, n=int(state["n"]))
                )
            if "grad" in state:
                mean = float(state["grad"] / state["steps"])
                records.append(
                    self._record("site_grad_norm", mean, step, site=site, n=int(state["steps"]))
                )
        self._batch = {}
        return records

    def _computed(
        self, metric: Metric, state: State, step: int, site: str | None = None
    ) -> list[Record]:
        n = int(state["n"])
        return [self._record(k, v, step, site=site, n=n) for k, v in metric.compute(state).items()]

    def _record(self, metric: str, value: float, step: int, **more: object) -> Record:
        unit = DEFINITIONS[metric]["unit"]
        return Record(metric=metric, value=value, unit=unit, step=step, **self._labels, **more)

    # -- across a restart ------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return what was counted on training batches since the last evaluation."""
        return {
            f"{site}|{k}": v.cpu() for site, state in self._batch.items() for k, v in state.items()
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take up what :meth:`state` returned."""
        self._batch = {}
        for name, tensor in state.items():
            site, _, key = name.rpartition("|")
            self._batch.setdefault(site, {})[key] = tensor

    def close(self) -> None:
        """Remove the hooks."""
        self._capture.close()


def _part(state: State | None, like: State) -> State | None:
    return {k: state[k] for k in like} if state and all(k in state for k in like) else None


def _depth(name: str) -> str:
    """Group a parameter by the first number in its path; what has none goes by its module's name."""
    parts = name.split(".")
    return next((".".join(parts[: i + 1]) for i, p in enumerate(parts) if p.isdigit()), parts[0])
