"""Tests of triplepoint.families.roles: what a norm stands before or after, in blocks of one's own."""

import pytest
from torch import nn

from triplepoint.families import find_norms


def parts(**modules):
    made = {"n": lambda: nn.LayerNorm(4), "l": lambda: nn.Linear(4, 4)}
    return {name: made[kind]() if kind in made else kind for name, kind in modules.items()}


class Block(nn.Module):
    """A block of the given children; ``forward`` calls them as its subclass says."""

    def __init__(self, **modules):
        super().__init__()
        for name, module in parts(**modules).items():
            setattr(self, name, module)


def roles_in(block):
    model = nn.Module()
    model.layers = nn.ModuleList([block])
    return {site.path.removeprefix("layers.0."): site.role for site in find_norms(model)}


class PreNorm(Block):
    def forward(self, x):
        x = x + self.attn(self.a(x))
        return x + self.mlp(self.b(x))


class PostNorm(Block):
    def forward(self, x):
        x = self.a(x + self.attn(x))
        return self.b(x + self.mlp(x))


class Sandwich(Block):
    def forward(self, x):
        x = x + self.b(self.attn(self.a(x)))
        return x + self.d(self.mlp(self.c(x)))


class LongSandwich(Block):
    """Gemma 4's: a third layer, which has a norm behind it only."""

    def forward(self, x):
        x = x + self.b(self.attn(self.a(x)))
        x = x + self.d(self.mlp(self.c(x)))
        return x + self.e(self.gate(x))


class Parallel(Block):
    def forward(self, x):
        h = self.a(x)
        return x + self.attn(h) + self.mlp(h)


class ParallelWithTwo(Block):
    def forward(self, x):
        for_attention, for_mlp = self.norm_attn(x), self.norm_mlp(x)
        return x + self.attn(for_attention) + self.mlp(for_mlp)


class CrossPreNorm(Block):
    def forward(self, x, memory):
        x = x + self.self_attn(self.a(x))
        x = x + self.cross_attn(self.b(x), memory)
        return x + self.mlp(self.c(x))


class CrossPostNorm(Block):
    def forward(self, x, memory):
        x = self.a(x + self.self_attn(x))
        x = self.b(x + self.cross_attn(x, memory))
        return self.c(x + self.mlp(x))


class NormFormer(Block):
    def forward(self, x):
        x = x + self.attn(self.a(x))
        return x + self.fc2(self.c(self.fc1(self.b(x))))


class Inside(Block):
    def forward(self, x):
        return self.out_proj(self.sub(self.v_proj(x)))


class Chosen(Block):
    def __init__(self, *, pre_norm, **modules):
        super().__init__(**modules)
        self.pre_norm = pre_norm

    def forward(self, x):
        h = self.a(x) if self.pre_norm else x
        x = x + self.attn(h)
        if not self.pre_norm:
            x = self.a(x)
        return self._feed(x)

    def _feed(self, x):
        if self.pre_norm == True:  # noqa: E712
            return x + self.mlp(self.b(x))
        return self.b(x + self.mlp(x))


class Inherited(PreNorm):
    def forward(self, x):
        return super().forward(x)


SIMPLE = {"attn": "l", "mlp": "l", "a": "n", "b": "n"}
CROSS = {"self_attn": "l", "cross_attn": "l", "mlp": "l", "a": "n", "b": "n", "c": "n"}

BLOCKS = {
    "pre-norm": (PreNorm(**SIMPLE), {"a": "pre_attn", "b": "pre_mlp"}),
    "post-norm": (PostNorm(**SIMPLE), {"a": "post_attn", "b": "post_mlp"}),
    "sandwich": (
        Sandwich(**SIMPLE, c="n", d="n"),
        {"a": "pre_attn", "b": "post_attn", "c": "pre_mlp", "d": "post_mlp"},
    ),
    "sandwich-and-one-behind": (
        LongSandwich(
            **SIMPLE | {"mlp": nn.Sequential(nn.Linear(4, 4))}, c="n", d="n", gate="l", e="n"
        ),
        {"a": "pre_attn", "b": "post_attn", "c": "pre_mlp", "d": "post_mlp", "e": "post_mlp"},
    ),
    "parallel": (Parallel(attn="l", mlp="l", a="n"), {"a": "pre_attn"}),
    "parallel-with-two": (
        ParallelWithTwo(attn="l", mlp="l", norm_attn="n", norm_mlp="n"),
        {"norm_attn": "pre_attn", "norm_mlp": "pre_mlp"},
    ),
    "cross-pre": (CrossPreNorm(**CROSS), {"a": "pre_attn", "b": "pre_attn", "c": "pre_mlp"}),
    "cross-post": (CrossPostNorm(**CROSS), {"a": "post_attn", "b": "post_attn", "c": "post_mlp"}),
    "normformer": (
        NormFormer(attn="l", fc1="l", fc2="l", a="n", b="n", c="n"),
        {"a": "pre_attn", "b": "pre_mlp", "c": "inner"},
    ),
    "inside-attention": (
        PreNorm(attn=Inside(out_proj="l", v_proj="l", sub="n"), mlp="l", a="n", b="n"),
        {"attn.sub": "inner", "a": "pre_attn", "b": "pre_mlp"},
    ),
    "a-setting-that-says-pre": (Chosen(pre_norm=True, **SIMPLE), {"a": "pre_attn", "b": "pre_mlp"}),
    "a-setting-that-says-post": (
        Chosen(pre_norm=False, **SIMPLE),
        {"a": "post_attn", "b": "post_mlp"},
    ),
    "an-inherited-forward": (Inherited(**SIMPLE), {"a": "pre_attn", "b": "pre_mlp"}),
    "convolution": (
        PostNorm(attn=nn.Conv1d(4, 4, 3), mlp="l", a="n", b="n"),
        {"a": "post_attn", "b": "post_mlp"},
    ),
}


@pytest.mark.parametrize(("block", "roles"), BLOCKS.values(), ids=BLOCKS)
def test_roles_follow_the_order_of_calls(block, roles):
    assert roles_in(block) == roles


def test_reading_a_number_of_a_norm_is_not_calling_it():
    class Checked(Block):
        def forward(self, x):
            if self.a.eps > 1 or self.b.weight is None:
                return x
            x = self.a(x + self.attn(x))
            return self.b(x + self.mlp(x))

    assert roles_in(Checked(**SIMPLE)) == {"a": "post_attn", "b": "post_mlp"}


def test_without_source_names_come_before_the_order_of_definition():
    scope = {"nn": nn}
    exec(
        "class Unseen(nn.Module):\n    def forward(self, x):\n        return self.mlp(self.attn(x))",
        scope,
    )
    block = scope["Unseen"]()
    for name, module in parts(
        attn="l", mlp="l", input_layernorm="n", post_attention_layernorm="n"
    ).items():
        setattr(block, name, module)
    assert roles_in(block) == {"input_layernorm": "pre_attn", "post_attention_layernorm": "pre_mlp"}


class Encoder(Block):
    def forward(self, x):
        x = self.before(self.embed(x))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.after(x))


def test_outside_blocks_it_counts_whether_a_norm_is_called_before_or_after_them():
    layers = nn.ModuleList([PreNorm(**SIMPLE)])
    model = Encoder(after="n", head="l", layers=layers, before="n", embed=nn.Embedding(4, 4))
    found = {site.path: site.role for site in find_norms(model)}
    assert (found["before"], found["after"]) == ("embed", "final")


def test_a_stage_of_blocks_has_norms_of_its_own():
    stage = Encoder(
        after="n", head="l", layers=nn.ModuleList([PostNorm(**SIMPLE)]), before="n", embed="l"
    )
    assert roles_in(stage) == {
        "after": "final",
        "before": "embed",
        "layers.0.a": "post_attn",
        "layers.0.b": "post_mlp",
    }


def test_a_block_by_itself_is_told_as_in_a_model():
    assert {s.path: s.role for s in find_norms(PostNorm(**SIMPLE))} == {
        "a": "post_attn",
        "b": "post_mlp",
    }


def test_a_norm_shared_by_two_blocks_has_the_role_of_its_first_place():
    first, second = PreNorm(**SIMPLE), PostNorm(**SIMPLE)
    second.b = first.a
    model = nn.ModuleList([first, second])
    assert {s.path: s.role for s in find_norms(model)} == {
        "0.a": "pre_attn", "0.b": "pre_mlp", "1.a": "post_attn",
    }  # fmt: skip
