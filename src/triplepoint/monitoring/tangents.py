"""Does a live run follow the drift along the zero-loss manifold? Windows of steps, within a time budget.

Symbols, as in the paper:
    theta   trainable parameters [d]; J, P_T, tau, eps as in ``grokking/drift.py``
    window  steps between two snapshots of theta; what training did in it is compared with P_T(-theta) at its middle
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from triplepoint.errors import MetricInputError, PlanError
from triplepoint.grokking.drift import compare_update, loss_gradient, validity_number
from triplepoint.grokking.kinks import Kinks
from triplepoint.grokking.linearisation import Linearisation, Stacked, stack
from triplepoint.grokking.manifold import TangentProjection, project_tangent
from triplepoint.grokking.retraction import retract
from triplepoint.monitoring.histories import Clock, Stopwatch
from triplepoint.monitoring.networks import LastOutput, Samples, TwoLayers
from triplepoint.monitoring.two_layers import Gates, two_layer_linearisation, two_layer_stack
from triplepoint.observation import evaluating

TOLERANCE = 1e-8
"""Relative residual of the solves: the projections are then right to about 1e-8, far below what is reported."""
SETTLED = 1e-6
"""Relative residual at which a point counts as on the manifold; float32 training does not get closer."""
SETTLING = 20
"""Gauss-Newton steps in which it must be reached; from a memorised network it takes three to eight."""
LEAST_PRODUCTS = 1000
"""Products with J J^T allowed, or twice as many as it has rows, which is twice what exact arithmetic needs: what takes
longer is too ill-conditioned to be trusted."""
NEAR = 0.1
"""||F - y|| / ||y|| up to which the point is near the manifold: only there does the gradient's share mean anything."""
SHORTEST = 10
"""Steps of a window: below, the chatter across the manifold does not average out."""
RELU_WINDOW = 200
"""Steps of a window for ReLU, whose gates flip rarely in a slow run."""

BUDGET, MISSED, NOT_FINITE, UNSOLVED = REASONS = (
    "over the time budget",
    "a step of the window was not observed",
    "weights were not finite",
    "J J^T could not be solved to 1e-8: too ill-conditioned",
)
"""Why diagnostics that were due are left out."""


class TangentWatch:
    """Tangent diagnostics every so many steps, as long as they take no more than a share of the time.

    Args:
        model: The model.
        samples: The training set, with squared error.
        layers: Its two layers, where it has just two.
        clock: Slow time, or None.
        every: Steps between diagnostics.
        window: Steps of a window, by default 200 for a two-layer ReLU net and 10 else.
        budget: Share of the elapsed time that diagnostics may take; the first is always made. Infinite for all.
        stopwatch: Of the run.

    Raises:
        PlanError: If the window does not fit.
        ModelError: If the model has no Jacobian: two equal calls differ, say.
    """

    def __init__(
        self,
        model: nn.Module,
        samples: Samples,
        *,
        layers: TwoLayers | None,
        clock: Clock | None,
        every: int,
        window: int | None,
        budget: float,
        stopwatch: Stopwatch,
    ):
        self._model, self._samples, self._layers = model, samples, layers
        relu = layers is not None and layers.activation.name == "relu"
        self._window = (RELU_WINDOW if relu else SHORTEST) if window is None else window
        if not SHORTEST <= self._window <= every:
            raise PlanError(
                f"A window of {self._window} steps does not fit between diagnostics every {every}.\n"
                f"Give diagnose_every=1000, and a window of at least {SHORTEST} steps and at most that."
            )
        if not budget > 0:
            raise PlanError(f"budget is {budget}.\nGive a share of the time above 0, e.g. 0.25.")
        self._clock, self._every, self._budget = clock, every, budget
        self._stopwatch = stopwatch
        self._parameters = self._in_order()
        if layers is None:
            self._try_products()
        self._gates = Gates(samples.X, layers) if relu else None
        self._taken: dict[str, Tensor] = {}  # "begin" and "middle": theta there
        self._spent = self._last_cost = 0.0
        self._declined = -1  # the step whose diagnostics the budget has already ruled out
        self.skipped = dict.fromkeys(REASONS, 0)
        """Reason -> how many diagnostics were due and left out for it."""

    def _in_order(self) -> list[nn.Parameter]:
        if self._layers is not None:
            return [self._layers.first, self._layers.last]
        return [p for p in self._model.parameters() if p.requires_grad]

    def _try_products(self) -> None:
        """Raise now, not in the middle of a run, what a model without a Jacobian raises."""
        with evaluating(self._model):
            lin = stack(LastOutput(self._model), self._samples.X[:2]).at()
            lin.jvp(lin.theta)

    def _theta(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self._parameters])

    # -- step by step ----------------------------------------------------------------------------------

    def watch(self, step: int) -> dict[str, float]:
        """Go through one step; returns the diagnostics that are due at it, else nothing."""
        start = self._stopwatch.elapsed
        into = step % self._every - (self._every - self._window)
        due = step > 0 and step % self._every == 0
        found: dict[str, float] = {}
        if due:
            self._watch_gates()
            found = self._finish(step)
        if into == 0:
            self._begin(step, start)
        if self._taken:
            self._watch_gates()
            if into == self._window // 2:
                self._taken["middle"] = self._theta()
        self._spent += self._stopwatch.elapsed - start
        return found

    def _begin(self, step: int, elapsed: float) -> None:
        """Open a window, unless its diagnostics would exceed the budget."""
        if self._taken:  # the end of the window before was not observed
            self._close()
            self.skipped[MISSED] += 1
        if self._last_cost and self._spent + self._last_cost > self._budget * elapsed:
            self._declined = step + self._window
            self.skipped[BUDGET] += 1
        else:
            self._taken = {"begin": self._theta()}

    def _close(self) -> tuple[dict[str, Tensor], Kinks | None]:
        """Return what the window took down, and forget it."""
        taken, self._taken = self._taken, {}
        if self._gates is None or not self._gates.tensors:
            return taken, None
        kinks, self._gates.tensors = self._gates.kinks(), {}
        return taken, kinks

    def _watch_gates(self) -> None:
        if self._taken and self._gates is not None:
            self._gates.watch()

    def _finish(self, step: int) -> dict[str, float]:
        """Close the window: diagnose, or count what is left out."""
        (taken, kinks), end = self._close(), self._theta()
        if step == self._declined:
            return {}
        if "middle" not in taken or not end.isfinite().all():
            self.skipped[MISSED if end.isfinite().all() else NOT_FINITE] += 1
            return {}
        slow = None
        if self._clock is not None:
            slow = self._clock.slow_time(step) - self._clock.slow_time(step - self._window)
        update = end.double() - taken["begin"].double()
        start = self._stopwatch.elapsed
        try:
            with evaluating(self._model), warnings.catch_warnings():
                # a solver that stopped early warns; its numbers are no measurement
                warnings.simplefilter("error", RuntimeWarning)
                found = self._diagnose(taken["middle"].double(), update, slow, kinks)
        except (RuntimeWarning, MetricInputError):
            self.skipped[UNSOLVED] += 1
            return {}
        finally:
            self._last_cost = self._stopwatch.elapsed - start
        return {name: value for name, value in found.items() if math.isfinite(value)}

    # -- the diagnostics -------------------------------------------------------------------------------

    def _diagnose(
        self, theta: Tensor, update: Tensor, slow: float | None, kinks: Kinks | None
    ) -> dict[str, float]:
        lin = self._linearise(theta)
        drift = self._project(lin, -theta)
        sigma = drift.solution.sigma_min
        found = {
            **_compared(update, drift, slow),
            "tau": drift.share**2,
            "tangent_share_update": self._project(lin, update).share,
        }
        if sigma is not None:
            found["sigma_min"] = sigma
            if self._clock is not None and self._clock.lam:
                found["validity"] = validity_number(lam=self._clock.lam, sigma_min=sigma)
        if kinks is not None:
            averaged = self._project(self._linearise(theta, kinks), -theta)
            found["cosine_kink"] = compare_update(update, averaged, slow_time=1.0).cosine
            found["stuck_share"] = kinks.stuck_share
        share = self._gradient_share(lin, theta)
        return found if share is None else {**found, "tangent_share_gradient": share}

    def _gradient_share(self, lin: Linearisation, theta: Tensor) -> float | None:
        """Tangent share of grad L, tangent at the manifold: at theta itself it is 0, for grad L = 2 J^T (F - y)."""
        y = self._samples.Y
        if (lin.outputs.view_as(y) - y).norm() > NEAR * y.norm():
            return None
        settled = retract(self._net(theta), y, theta=theta, tol=SETTLED, max_iterations=SETTLING)
        if not settled.converged:
            return None
        gradient = loss_gradient(lin, y)
        return self._project(self._linearise(settled.theta), gradient).share

    def _project(self, lin: Linearisation, v: Tensor) -> TangentProjection:
        limit = max(2 * lin.outputs.numel(), LEAST_PRODUCTS)
        return project_tangent(lin, v, tol=TOLERANCE, max_iterations=limit)

    def _net(self, theta: Tensor) -> Stacked:
        if self._layers is None:
            return stack(LastOutput(self._model), self._samples.X)
        return two_layer_stack(theta, self._samples.X.double(), self._layers)

    def _linearise(self, theta: Tensor, kinks: Kinks | None = None) -> Linearisation:
        if kinks is None:
            return self._net(theta).at(theta)
        return two_layer_linearisation(theta, self._samples.X.double(), self._layers, kinks)

    # -- across a restart ------------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """Return what a restart needs."""
        counts = [self._spent, self._last_cost, self._declined, *self.skipped.values()]
        gates = {} if self._gates is None else self._gates.tensors
        return {
            "counts": torch.tensor(counts, dtype=torch.float64),
            **{f"theta|{k}": v.clone() for k, v in self._taken.items()},
            **{f"gates|{k}": v.clone() for k, v in gates.items()},
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take up what :meth:`state` returned."""
        self._spent, self._last_cost, *counts = state["counts"].tolist()
        self._declined, *skipped = (int(n) for n in counts)
        self.skipped = dict(zip(REASONS, skipped, strict=True))
        device = self._parameters[0].device
        part = {
            kind: {
                k.removeprefix(kind): v.to(device) for k, v in state.items() if k.startswith(kind)
            }
            for kind in ("theta|", "gates|")
        }
        self._taken = part["theta|"]
        if self._gates is not None:
            self._gates.tensors = part["gates|"]


def _compared(update: Tensor, drift: TangentProjection, slow: float | None) -> dict[str, float]:
    compared = compare_update(update, drift, slow_time=slow or 1.0)
    found = {"cosine_tangent": compared.cosine, "cosine_weights": compared.null_cosine}
    return {**found, "speed_ratio": compared.speed_ratio} if slow else found
