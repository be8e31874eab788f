"""What a pickle would call and build, read opcode by opcode; nothing of it is run.

Two kinds are refused: those that call anything but what rebuilds tensors, and those in which a few bytes stand
for values without end, because each holds the one before twice. To hash or print such a value takes for ever.
"""

from __future__ import annotations

import math
import pickletools
import re
from collections.abc import Iterator
from pathlib import Path

import torch

from triplepoint.errors import CheckpointError

_HARMLESS = {
    "collections OrderedDict", "torch Size", "torch device", "torch Tensor",
    "torch.nn.parameter Parameter", "torch.storage UntypedStorage", "torch.storage TypedStorage",
    "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state",
    "torch._tensor _rebuild_from_type_v2", "torch.serialization _get_layout",
}  # fmt: skip
"""What a state dict needs. Fewer than torch allows: ``bytearray`` there takes any size for a few bytes."""
_STORAGE = re.compile(r"torch \w+Storage")
_HIDDEN = "a name on the stack"
_GROWTH, _ALWAYS = 16, 10_000
"""How often over a pickle's values may be used again, e.g. weights that stand under several keys; what is harmless."""
_FILLS = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"}
"""Opcodes that put what they take into what lies below it, and leave that."""


def refuse_calls(path: Path, pickle: bytes) -> None:
    """Refuse a pickle that calls anything but what rebuilds tensors; nothing of it is run.

    Raises:
        CheckpointError: Naming what it would call.
    """
    for called in calls_of(pickle):
        if called not in _HARMLESS and not _STORAGE.fullmatch(called) and not _is_dtype(called):
            if called == _HIDDEN:
                raise CheckpointError(
                    f"{path} is a pickle of protocol 4 or newer: what it calls does not show until it is run, so "
                    "it was refused and nothing was run.\n"
                    "Save the weights as safetensors, or with torch.save(model.state_dict(), path) and no "
                    "pickle_protocol."
                )
            raise CheckpointError(
                f"{path} asks to call {called.replace(' ', '.')} when it is loaded; weights do not need "
                "that, so it was refused and nothing was run.\n"
                "If you trust its author, load it with torch.load(path, weights_only=False) on a machine "
                "you can lose, and save the state_dict alone as safetensors."
            )


def calls_of(pickle: bytes) -> Iterator[str]:
    """Yield ``module name`` of every global that a pickle names, up to where it is damaged, running nothing.

    Example:
        >>> import pickle
        >>> list(calls_of(pickle.dumps({"size": complex(1, 2)}, protocol=2)))
        ['__builtin__ complex']
    """
    try:
        for code, argument, _ in pickletools.genops(pickle):
            if code.name in ("GLOBAL", "INST"):
                yield str(argument)
            elif code.name == "STACK_GLOBAL":
                # its names lie on the stack, out of sight of a reader that does not run it
                yield _HIDDEN
    except Exception:  # a damaged pickle: torch says what is wrong with it
        return


def _is_dtype(called: str) -> bool:
    module, _, name = called.partition(" ")
    return module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)


def refuse_bombs(path: Path, pickle: bytes) -> None:
    """Refuse a pickle whose values would be many times its opcodes if each were written out wherever it is used.

    Raises:
        CheckpointError: If so, if a value holds itself, or if the pickle is damaged.
    """
    try:
        whole, opcodes = written_out(pickle)
    except Exception as error:  # whatever a damaged pickle leads to
        raise CheckpointError(
            f"{path} cannot be read as a torch file (its pickle is damaged).\n"
            "It is cut, damaged or another kind of file: download or save it again."
        ) from error
    if whole > _ALWAYS + _GROWTH * opcodes:
        raise CheckpointError(
            f"{path} holds values within values without end: {opcodes} opcodes that stand for "
            f"{'ever more' if whole == math.inf else f'{whole:.0e}'} values; it was refused.\n"
            "Weights do not need that: get the file from its source again, as safetensors if there is one."
        )


def written_out(pickle: bytes) -> tuple[float, int]:
    """Return how many values a pickle stands for, each counted wherever it is used, and its opcodes.

    Infinity where a value holds itself.

    Example:
        >>> import pickle
        >>> pair = (1, 2)
        >>> written_out(pickle.dumps((pair, pair)))[0]  # 1 + 2 * (1 + 2)
        7.0
    """
    held: list[list[int]] = [
        []
    ]  # value -> the values that it holds; the first is every number and name
    stack: list[int | None] = []  # None is a mark
    memo: dict[int, int | None] = {}
    opcodes = 0
    for opcodes, (code, argument, _) in enumerate(pickletools.genops(pickle), 1):  # noqa: B007
        kind = code.name
        if "PUT" in kind or kind == "MEMOIZE":
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif "GET" in kind:
            stack.append(memo[argument])
        elif kind in ("MARK", "DUP"):
            stack.append(None if kind == "MARK" else stack[-1])
        elif kind != "STOP":
            _apply(code, stack, held)
    return _expanded(held, stack[-1]), opcodes


def _apply(
    code: pickletools.OpcodeInfo, stack: list[int | None], held: list[list[int | None]]
) -> None:
    """Take from the stack what an opcode takes, and put there what it makes of it."""
    taken: list[int | None] = []
    below = [k for k in code.stack_before if k not in (pickletools.markobject, pickletools.stackslice)]  # fmt: skip
    if pickletools.markobject in code.stack_before:
        while (value := stack.pop()) is not None:
            taken.append(value)
    taken += [stack.pop() for _ in below]
    if code.name in _FILLS:
        stack.append(taken.pop())
        held[stack[-1]] += taken
    elif code.stack_after and not code.stack_before and not code.name.startswith("EMPTY"):
        stack.append(0)
    elif code.stack_after:
        stack.append(len(held))
        held.append(taken)


def _expanded(held: list[list[int]], root: int) -> float:
    """Return 1 + the sizes of what a value holds, without recursion; infinity for a value that holds itself."""
    sizes: dict[int, float] = {}
    begun: set[int] = set()
    waiting = [root]
    while waiting:
        value = waiting[-1]
        if value in begun:
            if value not in sizes:
                # what is begun and has no size yet is on the way from the root to here
                sizes[value] = 1.0 + sum(sizes.get(v, math.inf) for v in held[value])
            waiting.pop()
        else:
            begun.add(value)
            waiting += [v for v in held[value] if v not in begun]
    return sizes[root]
