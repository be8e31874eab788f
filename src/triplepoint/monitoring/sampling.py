"""Counting what passes through the sites of a live model at sampled steps."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from triplepoint.capture import Capture
from triplepoint.metrics import Metric, State, add_states
from triplepoint.monitoring.ranks import States


class Sampler:
    """Counts at every site, while it is on, what enters it in training mode; keeps sums, never an activation.

    While it is off the model has no hook. While it is on ``torch.compile`` is set aside, since hooks don't
    run in code that was compiled without them: the step runs eagerly.

    Args:
        sites: Path -> module and the metrics measured there.
        budget: Bytes that all sums together may take.
    """

    def __init__(self, sites: Mapping[str, tuple[nn.Module, list[Metric]]], *, budget: int):
        self._sites, self._budget = dict(sites), budget
        self._capture: Capture | None = None
        self._eager: Callable[[], object] | None = None  # ends what it began
        self._seen: States = {}
        self._sizes: dict[tuple[str, str], int] = {}  # of the states that are kept
        self.skipped: dict[tuple[str, str], str] = {}
        """(site, metric) -> why it is not measured."""

    @property
    def is_on(self) -> bool:
        """Whether the hooks are there."""
        return self._capture is not None

    @property
    def is_blind(self) -> bool:
        """Whether something may have been compiled with the hooks in it, which leaves them out."""
        return self.is_on and self._eager is None and _may_compile()

    def start(self) -> None:
        """Register the hooks. Does nothing if they are there."""
        if self._capture is None:
            self._capture = Capture(
                {p: module for p, (module, _) in self._sites.items()}, self._see
            )
            # torch.compile imports it; the import is slow, and without it nothing has been compiled
            self._eager = _EAGER.hold(self) if _may_compile() else None

    def stop(self) -> None:
        """Remove the hooks. What was counted stays until it is taken."""
        if self._capture is not None:
            self._capture.close()
            self._capture = None
        if self._eager is not None:
            self._eager()
            self._eager = None

    def take(self) -> States:
        """Hand over the sums since the last call."""
        seen, self._seen = self._seen, {}
        return seen

    def _see(self, site: str, module: nn.Module, x: Tensor) -> None:
        own, metrics = self._sites[site]
        # a replica of DataParallel shares the hooks; its threads would race
        if module is not own or not module.training or _in_backward():
            return
        with torch.autocast(x.device.type, enabled=False):
            for metric in metrics:
                self._count(site, metric, module, x)

    def _count(self, site: str, metric: Metric, module: nn.Module, x: Tensor) -> None:
        if (site, metric.name) in self.skipped:
            return
        z = module.pre_activation(x) if metric.reads == "pre_activation" else x
        if z is None:
            return
        state = metric.update(z)
        if self._has_room((site, metric.name), state):
            states = self._seen.setdefault(site, {})
            states[metric.name] = add_states(states.get(metric.name), state)

    def _has_room(self, key: tuple[str, str], state: State) -> bool:
        if key in self._sizes:  # a state keeps its size
            return True
        size, kept = sum(tensor.nbytes for tensor in state.values()), sum(self._sizes.values())
        if kept + size > self._budget:
            reason = f"its {size} bytes, beside the {kept} of others, are over the budget of {self._budget}"
            if not self.skipped:
                warnings.warn(
                    f"The monitor leaves out '{key[1]}' at '{key[0]}': {reason}.\n"
                    "Raise budget_bytes, or choose other metrics; Monitor.skipped lists all that is left out.",
                    stacklevel=2,
                )
            self.skipped[key] = reason
            return False
        self._sizes[key] = size
        return True


class _Eager:
    """Sets torch.compile aside as long as anybody holds it, and then brings back what was before."""

    def __init__(self) -> None:
        self._holders = 0
        self._stance: Any = None

    def hold(self, holder: object) -> Callable[[], object]:
        """Return what lets go, once; so does the end of the holder, where a run was left in the middle."""
        if not self._holders:
            self._stance = torch.compiler.set_stance("force_eager")
        self._holders += 1
        return weakref.finalize(holder, self._let_go)

    def _let_go(self) -> None:
        self._holders -= 1
        if not self._holders:
            self._stance.__exit__(None, None, None)


_EAGER = _Eager()
"""The stance is the process's, so several monitors share it."""


def is_compiled(model: nn.Module) -> bool:
    """Whether ``model`` or a part of it runs through ``torch.compile``."""
    return any(
        "_orig_mod" in module._modules or module._compiled_call_impl is not None
        for module in model.modules()
    )


def _may_compile() -> bool:
    return "torch._dynamo" in sys.modules


def _in_backward() -> bool:
    """Whether a layer is being recomputed for its gradient: its first pass has been counted."""
    # torch has no public name for it; its own checkpointing asks the same
    return torch._C._current_graph_task_id() != -1
