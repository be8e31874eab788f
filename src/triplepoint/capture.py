"""Forward hooks and their removal: the only place that registers any."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn


class Capture:
    """Show what enters given modules to a function, while switched on.

    Nothing is kept: the function sees each input once, detached, inside the forward pass. Use as a context
    manager, or call :meth:`close`; either removes every hook.

    Args:
        modules: Site -> module.
        see: Called with the site, the module and its first input, under ``torch.no_grad``.

    Example:
        >>> layer, seen = nn.Linear(2, 1), []
        >>> with Capture({"layer": layer}, lambda site, module, x: seen.append((site, x.shape[0]))):
        ...     _ = layer(torch.zeros(3, 2))
        >>> _ = layer(torch.zeros(4, 2))
        >>> seen
        [('layer', 3)]
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], see: Callable[[str, nn.Module, Tensor], None]
    ):
        self.on = True
        self._see = see
        self._handles = [
            module.register_forward_pre_hook(self._hook(site), with_kwargs=True)
            for site, module in modules.items()
        ]

    def _hook(self, site: str) -> Callable[[nn.Module, tuple, dict], None]:
        def hook(module: nn.Module, inputs: tuple, named: dict) -> None:
            if self.on and (given := [*inputs, *named.values()]):
                with torch.no_grad():
                    self._see(site, module, given[0].detach())

        return hook

    def close(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
