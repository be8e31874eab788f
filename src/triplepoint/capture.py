"""Forward hooks and their removal: the only place that registers any."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class _Hook:
    """What is registered on a module: calls a function, but not from a copy of the module, nor while compiling.

    A copy of a module, an averaged model say, and a pickle of it have their own hook, which does nothing. Inside
    a compiled forward pass it leaves no trace, neither a graph break nor a call: what is to be seen there must
    run eagerly, under ``torch.compiler.set_stance("force_eager")``.
    """

    def __init__(self, show: Callable[..., None] | None):
        self._show = show

    def __call__(self, *given: Any) -> None:
        if self._show is not None and not torch.compiler.is_compiling():
            self._show(*given)

    def __reduce__(self) -> tuple[type[_Hook], tuple[None]]:
        return _Hook, (None,)


class _Hooks:
    """Hooks of one kind on several modules, removed by :meth:`close` or on leaving the context."""

    def __init__(self, handles: list[RemovableHandle]):
        self.on = True
        self._handles = handles

    def close(self) -> None:
        """Remove every hook."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def __enter__(self) -> _Hooks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Capture(_Hooks):
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
        self._see = see
        super().__init__(
            [
                module.register_forward_pre_hook(
                    _Hook(functools.partial(self._show, site)), with_kwargs=True
                )
                for site, module in modules.items()
            ]
        )

    def _show(self, site: str, module: nn.Module, inputs: tuple, named: dict) -> None:
        if self.on and (given := [*inputs, *named.values()]):
            with torch.no_grad():
                self._see(site, module, given[0].detach())


class CallCapture(_Hooks):
    """Show each call of given modules, what entered and what left, to a function, while switched on.

    A module's call is shown when it ends: after those of the modules inside it. Nothing is kept or detached.

    Args:
        modules: Site -> module.
        see: Called with the site, the inputs (positional ones, then those by keyword) and the output, under
            ``torch.no_grad``.

    Example:
        >>> model, seen = nn.Sequential(nn.Tanh()), []
        >>> with CallCapture({"0": model[0], "": model}, lambda site, inputs, y: seen.append((site, y.item()))):
        ...     _ = model(torch.zeros(1))
        >>> seen
        [('0', 0.0), ('', 0.0)]
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        see: Callable[[str, tuple[Any, ...], Any], None],
    ):
        self._see = see
        super().__init__(
            [
                module.register_forward_hook(
                    _Hook(functools.partial(self._show, site)), with_kwargs=True
                )
                for site, module in modules.items()
            ]
        )

    def _show(self, site: str, module: nn.Module, inputs: tuple, named: dict, output: Any) -> None:
        if self.on:
            with torch.no_grad():
                self._see(site, (*inputs, *named.values()), output)
