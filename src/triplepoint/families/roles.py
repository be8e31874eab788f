"""What a norm stands before or after: told by the order of calls in its block, and by names where that is silent."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Iterator

import torch
from torch import nn

from triplepoint.families.order import called_children

ROLES = (
    "pre_attn", "post_attn", "pre_mlp", "post_mlp", "qk", "embed", "inner", "final", "other",
)  # fmt: skip
"""What a norm stands before or after.

``embed`` stands in what makes tokens of the input, patch merging between stages included; ``inner`` between the
projections of one attention or MLP; ``final`` after the last block or in a head. What mixes positions without
being attention, such as a convolution or a state-space layer, counts as attention.
"""

_QK = r"(^|\.)(q|k|query|key|qk)_?(layer_?)?(norm|ln)(\.|$)"
_EMBED = r"emb(?!.*after)|patch_?(merg|norm|proj)|downsampl|feature_(extractor|projection)|conv_layers|(^|_)stem"
_MIXES = (
    r"att(n|ention)|mixer|mamba|ssm|rnn|lstm|gru|recurrent|retention|hyena|fourier|pool|_tokens"
)
_PER_POSITION = r"(^|_)(mlp|ffn?|feed_?forward)(_?\d)?$"
_MIXES_CLASS = r"Attention$|Attn$|Mixer$|SSM$|Conv\dd$|RNN$|LSTM$|GRU$|RecurrentBlock$"
_MIXES_WITHOUT_WEIGHTS = r"Fourier|Pooling$"
_NAMES = [  # the last part of the path, first match wins
    (r"^(subln|sub_norm|sub_?layer_?norm|inner_attn_ln)$", "inner"),
    (r"^(ln_1|ln1|norm_?1|input_layernorm|attention_norm|attn_norm|pre_attn_norm|self_attn_layer_norm)$", "pre_attn"),
    (r"^(ln_2|ln2|norm_?2|post_attention_layernorm|ffn_norm|mlp_norm|pre_mlp_norm)$", "pre_mlp"),
    (r"^(ln_f|norm_f|final_layernorm|final_layer_norm|final_norm|ln_final|ln_out)$", "final"),
]  # fmt: skip
_OF_KIND = {"a": "attn", "m": "mlp"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Step:
    """One thing that a model does: a norm, or a layer with weights."""

    path: str
    is_norm: bool
    unordered: int
    """Depth of the innermost module around it whose order of calls is not known; -1 if it is known of all."""
    classes: tuple[str, ...]
    """Class names from the model down to it."""
    is_pointwise: bool = False
    """Whether it is a convolution of width 1."""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2].lower()

    def within(self, block: str) -> bool:
        return not block or self.path.startswith(f"{block}.")

    def kind(self, block: str) -> str:
        """``n`` a norm, ``a`` mixes positions, ``m`` works on each: by the names and classes below the block."""
        if self.is_norm:
            return "n"
        depth = len(block.split(".")) if block else 0
        if any(re.search(_PER_POSITION, name) for name in self.path.lower().split(".")[depth:]):
            return "m"
        *around, last = self.path.lower().split(".")[depth:] or [""]
        mixes = (
            re.search(r"attention$", self.classes[depth].lower())
            or any(re.search(f"{_MIXES}|conv", name) for name in around)
            or re.search(_MIXES, last)
        )
        by_class = any(re.search(_MIXES_CLASS, kind) for kind in self.classes[depth + 1 :])
        return "a" if mixes or (by_class and not self.is_pointwise) else "m"


def roles_of(model: nn.Module, norms: Container[nn.Module]) -> dict[str, str]:
    """Return path -> role for each of ``norms``, whatever their class, at every path they have in ``model``."""
    steps = list(_steps(model, norms, "", -1, ()))
    named = {s.path: role for s in steps if s.is_norm and (role := _by_place(s.path))}
    counted = [s for s in steps if s.path not in named]
    block_of = {s.path: _block_of(s, counted) for s in counted if s.is_norm}
    blocks = {b for b in block_of.values() if b is not None}
    mixing = [b for b in blocks if b and any(s.kind(b) == "a" for s in counted if s.within(b))]
    roles: dict[str, str] = {}
    for path, block in block_of.items():
        # a stage of blocks is no block: its own norms stand before or after all of them
        inner = tuple(b for b in mixing if block is None or b.startswith(f"{block}."))
        if block is None or inner:
            roles[path] = _outside(path, counted, inner)
        elif path not in roles:
            roles |= _in_block([s for s in counted if s.within(block)], block)
    return roles | named


def _steps(
    module: nn.Module,
    norms: Container[nn.Module],
    path: str,
    unordered: int,
    classes: tuple[str, ...],
) -> Iterator[_Step]:
    """Walk through what the model does, in the order of calls."""
    is_norm = module in norms
    depth, classes = len(classes), (*classes, type(module).__name__)
    if is_norm or _works(module):
        pointwise = set(getattr(module, "kernel_size", ())) == {1}
        yield _Step(
            path=path, is_norm=is_norm, unordered=unordered, classes=classes, is_pointwise=pointwise
        )
    if is_norm or isinstance(module, torch.jit.ScriptModule):
        return  # nothing in what TorchScript compiled can be swapped
    order = called_children(module)
    for name in module._modules if order is None else order:
        if (child := module._modules[name]) is not None:
            below = f"{path}.{name}" if path else name
            yield from _steps(child, norms, below, depth if order is None else unordered, classes)


def _works(module: nn.Module) -> bool:
    """Whether a module does more than scale, shift, drop or look up."""
    if isinstance(module, nn.Embedding):
        return False
    # gains, biases and layer scales have one axis, or several of length 1
    matrices = [
        p for p in module._parameters.values() if p is not None and sum(n > 1 for n in p.shape) > 1
    ]
    return bool(matrices) or re.search(_MIXES_WITHOUT_WEIGHTS, type(module).__name__) is not None


def _by_place(path: str) -> str | None:
    """Tell the roles that a name alone settles."""
    if re.search(_QK, path.lower()):
        return "qk"
    inside = re.split(r"\.\d+\.(?!.*\.\d+\.)", path.lower())[-1]
    return "embed" if any(re.search(_EMBED, part) for part in (path.lower(), inside)) else None


def _block_of(norm: _Step, steps: list[_Step]) -> str | None:
    """Return the innermost numbered module around a norm that also does something else, or None."""
    parts = norm.path.split(".")
    for end in range(len(parts) - 1, 0, -1):
        block = ".".join(parts[:end])
        if parts[end - 1].isdigit() and any(not s.is_norm and s.within(block) for s in steps):
            return block
    numbered = any(part.isdigit() for s in steps for part in s.path.split(".")[:-1])
    # a block by itself, e.g. one nn.TransformerEncoderLayer
    return "" if not numbered and any(s.kind("") == "a" for s in steps) else None


def _in_block(steps: list[_Step], block: str) -> dict[str, str]:
    """Give each norm of a block its role by what is called before and after it."""
    kinds = [s.kind(block) for s in steps]
    depth = len(block.split(".")) if block else 0
    roles = {}
    for i, step in enumerate(steps):
        if step.is_norm:
            role = _between(steps, kinds, i, block)
            # where the order of calls is not known, it is the order of definition
            roles[step.path] = role if step.unordered < depth else _by_name(step.path) or role
    return roles


def _between(steps: list[_Step], kinds: list[str], at: int, block: str) -> str:
    before = next((i for i in range(at - 1, -1, -1) if kinds[i] != "n"), None)
    after = next((i for i in range(at + 1, len(kinds)) if kinds[i] != "n"), None)
    if before is None and after is None:
        return _by_name(steps[at].path) or "other"
    post = None if before is None else f"post_{_OF_KIND[kinds[before]]}"
    pre = None if after is None else f"pre_{_OF_KIND[kinds[after]]}"
    alone = at - 1 == before and at + 1 == after
    if post is None:
        # two norms side by side at the start, as in Falcon, each feed one branch
        feeds_mlp = at + 1 != after or at > 0
        return "pre_mlp" if feeds_mlp and re.search(r"mlp|ff", steps[at].name) else pre
    if pre is None:
        return post
    if kinds[before] == kinds[after] and _within_one(steps[at], steps[before], steps[after], block):
        return "inner"
    if alone:
        # the second half of a post-norm block, or the first of a pre-norm one
        return post if _is_post_norm(kinds) else pre
    return post if at - 1 == before else pre


def _is_post_norm(kinds: list[str]) -> bool:
    """Whether a norm ends the block and none begins it; or, as in Gemma 2, norms stand on both sides of a layer."""
    sandwich = any(kinds[i : i + 2] == ["n", "n"] for i in range(1, len(kinds) - 2))
    return kinds[-1] == "n" and (kinds[0] != "n" or sandwich)


def _within_one(norm: _Step, before: _Step, after: _Step, block: str) -> bool:
    """Whether a norm stands between layers of one attention or MLP."""
    depth, parts = len(block.split(".")) if block else 0, norm.path.split(".")
    parts_of = (".".join(parts[:end]) for end in range(depth + 1, len(parts)))
    if any(before.within(part) and after.within(part) for part in parts_of):
        return True
    # directly in the block only the two layers of an MLP, not e.g. self- and cross-attention
    parents = {s.path.rpartition(".")[0] for s in (before, norm, after)}
    return parents == {block} and after.kind(block) == "m"


def _outside(path: str, steps: list[_Step], blocks: tuple[str, ...]) -> str:
    """Tell embedding from final norms: before or after the first block."""
    if (named := _by_name(path)) is not None:
        return named
    at = next(i for i, s in enumerate(steps) if s.path == path)
    if not blocks:
        return "final" if _is_lone(path) else "other"
    return "final" if any(s.within(b) for s in steps[:at] for b in blocks) else "embed"


def _by_name(path: str) -> str | None:
    name = path.rpartition(".")[2].lower()
    return next((role for pattern, role in _NAMES if re.search(pattern, name)), None)


def _is_lone(path: str) -> bool:
    # outside numbered blocks, as in `model.norm`
    name = path.rpartition(".")[2].lower()
    return re.fullmatch(r"norm|ln|layer_?norm", name) is not None and not re.search(r"\d", path)
