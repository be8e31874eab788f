"""Laws of swapping, on random trees of modules: norms anywhere, shared, tied, frozen, mixed dtypes, meta."""

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from triplepoint.ops import NormOp
from triplepoint.surgery import rebuild, sidecar_of, swap_norms, unswap_norms

WIDTH = 4
DTYPES = [torch.float32, torch.bfloat16, torch.float64]
NORMS = [
    lambda: nn.LayerNorm(WIDTH),
    lambda: nn.LayerNorm(WIDTH, bias=False),
    lambda: nn.LayerNorm(WIDTH, elementwise_affine=False),
    lambda: nn.RMSNorm(WIDTH, eps=1e-6),
]
OTHERS = [
    lambda: nn.Linear(WIDTH, WIDTH),
    lambda: nn.Embedding(3, WIDTH),
    lambda: nn.BatchNorm1d(WIDTH),
    lambda: nn.GroupNorm(2, WIDTH),
    lambda: nn.LayerNorm((2, WIDTH)),
    nn.Identity,
]
# names that stand for roles among them
NAMES = ["ln_1", "ln_2", "norm", "q_norm", "child", "other"]


class Grower:
    """Draws a tree, module by module; what it made before may hang in it again."""

    def __init__(self, draw):
        self.draw, self.made = draw, []

    def leaf(self):
        if self.made and self.draw(st.integers(0, 4)) == 0:
            return self.draw(st.sampled_from(self.made))
        leaf = self.draw(st.sampled_from([*NORMS, *NORMS, *OTHERS]))()
        leaf.to(self.draw(st.sampled_from(DTYPES))).train(self.draw(st.booleans()))
        for parameter in leaf.parameters():
            nn.init.normal_(parameter)
            parameter.requires_grad_(self.draw(st.booleans()))
        self.made.append(leaf)
        return leaf

    def tree(self, depth):
        if depth == 0:
            return self.leaf()
        children = [
            self.tree(depth - 1 if self.draw(st.booleans()) else 0)
            for _ in range(self.draw(st.integers(1, 3)))
        ]
        kind = self.draw(st.sampled_from(["list", "sequence", "dict"]))
        if kind == "dict":
            return nn.ModuleDict(zip(NAMES, children, strict=False))
        return nn.ModuleList(children) if kind == "list" else nn.Sequential(*children)

    def tie(self):
        """Let two leaves with a weight of one shape and dtype share it."""
        with_weight = [m for m in self.made if getattr(m, "weight", None) is not None]
        pairs = [
            (a, b)
            for a in with_weight
            for b in with_weight
            if a is not b and (a.weight.shape, a.weight.dtype) == (b.weight.shape, b.weight.dtype)
        ]
        if pairs and self.draw(st.booleans()):
            a, b = self.draw(st.sampled_from(pairs))
            a.weight = b.weight


@st.composite
def trees(draw):
    grower = Grower(draw)
    # one norm that nothing ties or holds back: there is always something to swap
    model = nn.ModuleList([nn.LayerNorm(WIDTH), grower.tree(2)])
    grower.tie()
    return model.to("meta") if draw(st.integers(0, 4)) == 0 else model


def modules_of(model):
    return dict(model.named_modules(remove_duplicate=False))


def partition(named):
    """Which names stand for one object."""
    groups = {}
    for name, item in named:
        groups.setdefault(id(item), []).append(name)
    return sorted(groups.values())


def affine_of(model):
    """Name -> parameter, of all gains, shifts and whatever other modules have."""
    named = model.named_parameters(remove_duplicate=False)
    return {n: p for n, p in named if n.rpartition(".")[2] in ("weight", "bias")}


def facts_of(tensor):
    values = None if tensor.is_meta else tensor.tolist()
    return values, tensor.dtype, tensor.device, tensor.requires_grad, tuple(tensor.shape)


def is_norm(module):
    return isinstance(module, nn.LayerNorm | nn.RMSNorm)


@settings(max_examples=60)
@given(trees())
def test_every_norm_is_swapped_or_reported_once(model):
    norms = {id(m): p for p, m in model.named_modules() if is_norm(m)}
    report = swap_norms(model, "dyt")
    swapped, skipped = [i.path for i in report.swapped], [i.path for i in report.skipped]
    assert sorted(p for p in swapped + skipped if p in norms.values()) == sorted(norms.values())
    assert len(set(swapped + skipped)) == len(swapped + skipped)
    assert all(item.reason for item in report.skipped)
    left = {path for path, module in model.named_modules() if is_norm(module)}
    assert left <= set(skipped)
    assert {p for p, m in model.named_modules() if isinstance(m, NormOp)} == set(swapped)


@settings(max_examples=60)
@given(trees())
def test_values_dtypes_devices_modes_and_sharing_are_kept(model):
    affine = {n: facts_of(p) for n, p in affine_of(model).items()}
    modes = {path: m.training for path, m in modules_of(model).items()}
    shared, tied = partition(modules_of(model).items()), partition(affine_of(model).items())
    swap_norms(model, "dyt")
    assert {n: facts_of(p) for n, p in affine_of(model).items()} == affine
    assert {path: m.training for path, m in modules_of(model).items()} == modes
    assert partition(modules_of(model).items()) == shared
    assert partition(affine_of(model).items()) == tied
    assert set(model.state_dict()) - set(affine) == {
        n for n in model.state_dict() if n.endswith(("alpha", "scale", "running_mean", "running_var", "num_batches_tracked"))
    }  # fmt: skip


@settings(max_examples=60)
@given(trees(), st.sampled_from([["dyt"], ["derf", "rmsnorm"]]), st.booleans())
def test_undoing_gives_the_same_modules_with_the_same_values(model, ops, by_copy):
    state = {n: facts_of(t) for n, t in model.state_dict().items()}
    modules = modules_of(model)
    for op in ops:
        swap_norms(model, op)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, NormOp):
                for parameter in module.parameters():
                    parameter.zero_()
    if by_copy:
        model = copy.deepcopy(model)
    unswap_norms(model)
    found = modules_of(model)
    assert {p: type(m) for p, m in found.items()} == {p: type(m) for p, m in modules.items()}
    assert by_copy or all(found[p] is m for p, m in modules.items())
    assert {n: facts_of(t) for n, t in model.state_dict().items()} == state


@settings(max_examples=40)
@given(trees(), st.sampled_from(["dyt", "derf:recommended", "bhyt"]))
def test_a_description_rebuilds_the_structure(model, op):
    twin = copy.deepcopy(model)
    swap_norms(model, op)
    rebuild(twin, sidecar_of(model))
    assert [(n, t.shape, t.dtype) for n, t in twin.state_dict().items()] == [
        (n, t.shape, t.dtype) for n, t in model.state_dict().items()
    ]
    assert partition(affine_of(twin).items()) == partition(affine_of(model).items())
    assert sidecar_of(twin) == sidecar_of(model)
