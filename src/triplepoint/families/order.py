"""The order in which a module calls its children, read from the source of its ``forward``.

No input is needed and nothing is run, so a model on the meta device can be read as well. A branch on one of the
module's own settings (``if self.pre_norm:``) is followed as the settings say.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator

from torch import nn


def called_children(module: nn.Module) -> list[str] | None:
    """Return the names of the children of ``module`` in the order of their first use in its ``forward``.

    Children that it does not mention come last, as defined. None where there is no source to read.

    Example:
        >>> layer = nn.TransformerEncoderLayer(4, 1, norm_first=True)
        >>> called_children(layer)[:2], called_children(nn.TransformerEncoderLayer(4, 1))[:2]
        (['norm1', 'self_attn'], ['self_attn', 'dropout1'])
    """
    if len(module._modules) < 2 or isinstance(
        module, nn.Sequential | nn.ModuleList | nn.ModuleDict
    ):
        return list(module._modules)
    uses = list(_uses(module, type(module).__mro__, "forward", set()))
    called = {name for name, is_call in uses if is_call}
    # `self.norm.eps` and the like also come before the call
    used = dict.fromkeys(name for name, is_call in uses if is_call or name not in called)
    unused = [name for name in module._modules if name not in used]
    return [*used, *unused] if used or not unused else None


def _uses(
    module: nn.Module, classes: tuple[type, ...], method: str, seen: set[object]
) -> Iterator[tuple[str, bool]]:
    """Yield the children that a method and those it calls mention, in order, and whether they are called."""
    at = next((i for i, kind in enumerate(classes) if method in vars(kind)), None)
    function = None if at is None else inspect.unwrap(vars(classes[at])[method])
    if function in seen or not inspect.isfunction(function) or (tree := _tree(function)) is None:
        return
    seen.add(function)
    for name, how in _names(tree, module):
        if name in module._modules:
            yield name, how == "call"
        else:
            above = classes[at + 1 :] if how == "super" else type(module).__mro__
            yield from _uses(module, above, name, seen)


@functools.lru_cache(maxsize=1024)
def _tree(function: Callable) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None


def _names(node: ast.AST, module: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield each ``name`` of ``self.name`` as evaluated, with how it is used: ``call``, ``super`` or ``mention``."""
    if isinstance(node, ast.If | ast.IfExp) and (known := _truth(node.test, module)) is not None:
        branch = node.body if known else node.orelse
        for child in branch if isinstance(branch, list) else [branch]:
            yield from _names(child, module)
        return
    if isinstance(node, ast.Attribute) and _is_name(node.value, "self"):
        yield node.attr, "mention"
        return
    for child in _in_order_of_evaluation(node):
        yield from _names(child, module)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if _is_name(node.func.value, "self"):
            yield node.func.attr, "call"
        elif isinstance(node.func.value, ast.Call) and _is_name(node.func.value.func, "super"):
            yield node.func.attr, "super"


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _in_order_of_evaluation(node: ast.AST) -> list[ast.AST]:
    """Arguments before what is called, and what is looped over before the loop."""
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        return [*node.args, *(keyword.value for keyword in node.keywords), node.func]
    if isinstance(node, ast.For | ast.comprehension):
        return [node.iter, *(c for c in children if c is not node.iter)]
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return [*node.generators, node.elt]
    return children


def _truth(test: ast.AST, module: nn.Module) -> bool | None:
    """Return the truth of a test of the module's own settings; None where it depends on anything else."""
    try:
        value = _value(test, module)
    except LookupError:
        return None
    known = isinstance(value, bool | int | float | str | nn.Module) or value is None
    return bool(value) if known else None


def _value(node: ast.AST, module: nn.Module) -> object:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name(id="self"):
            return module
        case ast.Attribute():
            return getattr(_value(node.value, module), node.attr, None)
        case ast.UnaryOp(op=ast.Not()) if (known := _truth(node.operand, module)) is not None:
            return not known
        case ast.Compare(ops=[ast.Eq() | ast.Is()]):
            return _value(node.left, module) == _value(node.comparators[0], module)
        case ast.Compare(ops=[ast.NotEq() | ast.IsNot()]):
            return _value(node.left, module) != _value(node.comparators[0], module)
    raise LookupError
