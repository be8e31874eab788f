"""Tests of triplepoint.invariance: every kind of leak is found and named, every correct model passes."""

import copy
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from triplepoint.errors import ModelError, UnknownNameError
from triplepoint.invariance import LAWS, CheckReport, check, check_causality
from triplepoint.invariance.contrasts import Case, first_row, prefix_of
from triplepoint.invariance.locating import ITSELF
from triplepoint.invariance.samples import sample_for
from triplepoint.models import GPT2, GPT2Config, config_of, model_of
from triplepoint.ops import OPS
from triplepoint.surgery import swap_norms

VOCAB, DIM = 17, 12


def stack(*layers):
    """Embedding, the given layers, head."""
    return nn.Sequential(nn.Embedding(VOCAB, DIM), *layers, nn.Linear(DIM, VOCAB))


class Over(nn.Module):
    """Apply a module to [batch, dim, seq]."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.transpose(1, 2)).transpose(1, 2)


class Attention(nn.Module):
    """Self-attention, with or without a causal mask, and a GroupNorm over time or none."""

    def __init__(self, *, causal=True, over_time=False):
        super().__init__()
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.causal = causal
        self.norm = Over(nn.GroupNorm(3, DIM)) if over_time else nn.LayerNorm(DIM)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.proj(self.norm(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)))


class CausalConv(nn.Conv1d):
    """A convolution that sees ``ahead`` positions of the future."""

    def __init__(self, ahead=0, width=3):
        super().__init__(DIM, DIM, width)
        self.ahead = ahead

    def forward(self, x):
        width = self.kernel_size[0]
        return super().forward(F.pad(x, (width - 1 - self.ahead, self.ahead)))


class AlwaysDropping(nn.Module):
    """Dropout that forgot to ask for the mode."""

    def forward(self, x):
        return F.dropout(x, 0.3, training=True)


class Functional(nn.Module):
    """Whatever ``mix`` does, between an embedding and a head and in no module of its own."""

    def __init__(self, mix):
        super().__init__()
        self.embed, self.head, self.mix = nn.Embedding(VOCAB, DIM), nn.Linear(DIM, VOCAB), mix

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens)))


def broken_laws(model, inputs=None):
    return {law: r.first_violation for law, r in check(model, inputs).items() if r.ok is False}


def lines_of(error, call):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value).split("\n")


# --- leaks are found, and the module is named


@pytest.mark.parametrize(
    ("layer", "path"),
    [
        (Attention(over_time=True), "1.norm.inner"),
        (Attention(causal=False), "1"),
        (Over(CausalConv(ahead=1)), "1.inner"),
        (Over(nn.Conv1d(DIM, DIM, 3, padding=1)), "1.inner"),
        (Over(CausalConv(ahead=20, width=21)), "1.inner"),
        (nn.GRU(DIM, DIM // 2, bidirectional=True, batch_first=True), "1"),
        (nn.TransformerEncoderLayer(DIM, 2, 16, batch_first=True), "1.self_attn"),
    ],
    ids=["group-norm-over-time", "no-mask", "conv", "padded-conv", "far-conv", "two-way-gru", "encoder"],
)  # fmt: skip
def test_a_leak_of_the_future_is_found_and_its_module_named(layer, path):
    if isinstance(layer, nn.GRU):
        model = nn.Sequential(nn.Embedding(VOCAB, DIM), layer)
    else:
        model = stack(layer, Attention())
    report = check_causality(model)
    assert (report.ok, report.first_violation) == (False, path)
    assert report.max_change > 0


def test_a_leak_between_modules_is_the_models_own():
    report = check_causality(Functional(lambda x: x - x.mean(dim=1, keepdim=True)))
    assert (report.ok, report.first_violation) == (False, ITSELF)


def test_a_leak_of_the_last_position_into_the_first_alone_is_found():
    def wrapped(x):
        return torch.cat([x[:, :1] + x[:, -1:], x[:, 1:]], dim=1)

    assert check_causality(Functional(wrapped)).ok is False


@pytest.mark.parametrize("place", [0, 27], ids=["first", "last"])
def test_a_leak_between_the_two_positions_at_an_end_is_found(place):
    def mixed(x):
        leaked = x[:, place : place + 1] + x[:, place + 1 : place + 2]
        return torch.cat([x[:, :place], leaked, x[:, place + 1 :]], dim=1)

    assert sample_for(Functional(None)).seq == 29
    assert check_causality(Functional(mixed)).first_violation == ITSELF


def test_a_leak_in_one_row_only_is_found():
    def mixed(x):
        return torch.cat([x[:-1], x[-1:].flip(1)])

    assert check_causality(Functional(mixed)).ok is False


def test_a_batch_norm_over_time_leaks_in_training_mode_only():
    model = stack(Over(nn.BatchNorm1d(DIM)))
    report = check_causality(model)
    assert (report.ok, report.first_violation) == (False, "1.inner")
    assert report.done.startswith("in training mode, ")


@pytest.mark.parametrize(
    ("layer", "broken"),
    [
        (Attention(over_time=True), {"causality": "1.norm.inner", "length": "1.norm.inner"}),
        (Over(nn.BatchNorm1d(DIM)), {"causality": "1.inner", "batch": "1.inner", "train_eval": "1.inner"}),
        (
            Over(nn.BatchNorm1d(DIM, track_running_stats=False)),
            dict.fromkeys(("causality", "length", "batch"), "1.inner"),
        ),
        (AlwaysDropping(), {"determinism": "1"}),
        (nn.Sequential(nn.Dropout(0.5), Attention(), nn.LayerNorm(DIM)), {}),
    ],
    ids=["group-norm", "batch-norm", "batch-norm-of-each-batch", "active-dropout", "fine"],
)  # fmt: skip
def test_each_law_is_told_from_the_others(layer, broken):
    found = broken_laws(stack(layer))
    if isinstance(layer, AlwaysDropping):
        # the same random state at another shape is another mask: it breaks length and batch as well
        assert found["determinism"] == "1"
        assert "causality" not in found
    else:
        assert found == broken


def test_rows_that_see_each_other_are_found_in_eval_mode():
    found = broken_laws(Functional(lambda x: x + x.mean(dim=0, keepdim=True)))
    assert found["batch"] == ITSELF


def test_positions_counted_from_the_end_break_the_length_law_alone():
    def from_the_end(x):
        return x + torch.arange(x.shape[1], 0, -1).view(1, -1, 1)

    assert broken_laws(Functional(from_the_end)) == {"length": ITSELF}


# --- correct models pass


@pytest.mark.parametrize("size", ["gpt2-0.1m", "llama-0.1m"])
@pytest.mark.parametrize("op", OPS)
def test_every_op_obeys_every_law(size, op):
    model = model_of(config_of(size, dropout=0.1))
    swap_norms(model, op)
    reports = check(model)
    assert {law: r.ok for law, r in reports.items()} == dict.fromkeys(LAWS, True)
    assert reports["causality"].max_change == 0
    assert reports["determinism"].max_change == 0


@pytest.mark.parametrize(
    "layer",
    [
        Over(CausalConv()),
        nn.Dropout(0.5),
        nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(inplace=True)),
        Attention(),
    ],
    ids=["conv", "dropout", "in-place", "attention"],
)
def test_causal_layers_obey_every_law(layer):
    assert broken_laws(stack(layer)) == {}


def test_an_output_in_another_form_is_compared_by_its_logits():
    @dataclasses.dataclass
    class Output:
        logits: torch.Tensor

    class Wrapped(nn.Module):
        def __init__(self, form):
            super().__init__()
            self.inner, self.form = stack(Attention(causal=False)), form

        def forward(self, tokens):
            return self.form(self.inner(tokens))

    for form in (
        lambda y: Output(logits=y),
        lambda y: {"loss": y.mean(), "logits": y},
        lambda y: (y, None),
    ):
        report = check_causality(Wrapped(form))
        assert (report.ok, report.first_violation) == (False, "inner.1")


def test_transformers_decoders_pass_and_an_encoder_sees_the_future():
    transformers = pytest.importorskip("transformers")
    shape = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "vocab_size": 30,
    }
    decoder = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**shape, attention_dropout=0.1)
    )
    assert {law: r.ok for law, r in check(decoder).items()} == dict.fromkeys(LAWS, True)
    encoder = transformers.BertModel(transformers.BertConfig(**shape))
    assert check_causality(encoder).first_violation == "encoder.layer.0.attention.self"


def test_float64_is_held_to_a_closer_limit():
    model = stack(Attention()).double()
    report = check(model)["length"]
    assert report.ok
    assert report.limit == pytest.approx(1e-12 * report.output_std)

    leaking = Functional(lambda x: x + 1e-9 * x.mean(dim=1, keepdim=True)).double()
    assert check(leaking)["length"].ok is False


def test_half_precision_is_checked_on_a_float32_copy_and_causality_in_its_own():
    model = stack(Attention()).bfloat16()
    reports = check(model)
    assert all(r.ok for r in reports.values())
    assert reports["length"].note == "on a float32 copy"
    assert check_causality(model).max_change == 0
    assert next(model.parameters()).dtype == torch.bfloat16


def sharp():
    """A correct model in which rounding grows: large weights, and no norms."""
    model = GPT2(GPT2Config(width=64, layers=6, heads=4))
    swap_norms(model, "dyt:paper")
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.5)
    return model


def test_rounding_that_grows_is_not_taken_for_a_leak():
    model = sharp()
    report = check(model)["length"]
    assert report.ok
    assert report.note.startswith("decided on a float64 copy: its float32 rounding grows to")
    assert {p.dtype for p in model.parameters()} == {torch.float32}

    model.ln_f = nn.Sequential(model.ln_f, Mean())
    report = check(model)["length"]
    assert (report.ok, report.first_violation) == (False, "ln_f.1")
    assert report.note == "decided on a float64 copy"


class Mean(nn.Module):
    """A leak of a thousandth of the mean over time."""

    def forward(self, x):
        return x + 1e-3 * x.mean(dim=1, keepdim=True)


# --- inputs


@pytest.mark.parametrize("form", ["tensor", "tuple", "mapping"])
def test_inputs_may_be_a_tensor_a_tuple_or_a_mapping(form):
    class TwoInputs(nn.Module):
        def __init__(self, causal):
            super().__init__()
            self.inner = stack(Attention(causal=causal))

        def forward(self, input_ids, attention_mask=None):
            keep = 1.0 if attention_mask is None else attention_mask.unsqueeze(-1)
            return self.inner(input_ids) * keep

    tokens, mask = torch.randint(VOCAB, (2, 9)), torch.ones(2, 9)
    inputs = {
        "tensor": tokens,
        "tuple": (tokens, mask),
        "mapping": {"attention_mask": mask, "input_ids": tokens},
    }[form]
    assert all(r.ok for r in check(TwoInputs(True), inputs).values())
    assert check_causality(TwoInputs(False), inputs).first_violation == "inner.1"


def test_continuous_sequences_are_checked_as_well():
    x = torch.randn(2, 9, DIM)
    assert check_causality(Attention(), x).ok
    assert check_causality(Attention(causal=False), x).first_violation == ITSELF


def test_a_single_row_is_widened_for_the_batch_law():
    tokens = torch.randint(VOCAB, (1, 9))
    assert check(stack(Over(nn.BatchNorm1d(DIM))), tokens)["batch"].ok is False
    assert check(stack(Attention()), tokens)["batch"].ok


def test_images_obey_the_laws_that_apply():
    model = model_of(config_of("vit-0.1m"))
    reports = check(model, torch.randn(2, 1, 8, 8))
    assert {law: r.ok for law, r in reports.items()} == {
        "causality": None, "length": None, "batch": True, "determinism": True, "train_eval": True,
    }  # fmt: skip
    assert reports["length"].note == "Inputs of shape [3, 1, 8, 8] are no sequences"


def test_drawn_tokens_fit_a_short_context_and_avoid_the_padding():
    model = GPT2(GPT2Config(width=8, layers=1, heads=2, vocab=5, context=6))
    sample = sample_for(model)
    assert sample.main.shape == (3, 4)
    assert check_causality(model).ok

    padded = nn.Sequential(nn.Embedding(4, 4, padding_idx=2), nn.Linear(4, 4))
    tokens = sample_for(padded).main
    assert set(tokens.unique().tolist()) == {0, 1, 3}


def test_every_position_of_a_changed_suffix_is_another_allowed_id():
    sample = sample_for(nn.Embedding(3, 2, padding_idx=0))
    changed = sample.with_suffix(4)
    assert torch.equal(changed[:, :4], sample.main[:, :4])
    assert not (changed[:, 4:] == sample.main[:, 4:]).any()
    assert set(changed.unique().tolist()) == {1, 2}


def test_a_model_with_a_fixed_length_is_not_held_to_the_length_law():
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = stack(Attention())

        def forward(self, tokens):
            assert tokens.shape[1] == 9
            return self.inner(tokens)

    reports = check(Fixed(), torch.randint(VOCAB, (2, 9)))
    assert reports["length"].ok is None
    assert "cannot be called on [3, 4]" in reports["length"].note
    assert reports["causality"].ok


def test_training_that_is_random_by_design_is_not_compared():
    class StochasticDepth(nn.Module):
        def forward(self, x):
            return x * torch.rand(()) if self.training else x

    report = check(stack(StochasticDepth()))["train_eval"]
    assert (report.ok, report.note) == (None, "training mode is random besides dropout")


# --- the model is left as it was


def test_the_model_is_left_as_it_was():
    model = stack(Over(nn.BatchNorm1d(DIM)), nn.Dropout(0.5), AlwaysDropping())
    model[1].eval()
    modes = [m.training for m in model.modules()]
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    check(model)
    check_causality(model)
    assert [m.training for m in model.modules()] == modes
    assert model[2].p == 0.5
    assert all(
        torch.equal(a, b) for a, b in zip(state.values(), model.state_dict().values(), strict=True)
    )
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(m._forward_hooks for m in model.modules())
    assert all(p.grad is None for p in model.parameters())


def test_dropout_rates_of_configurations_come_back():
    model = GPT2(GPT2Config(width=8, layers=1, heads=2, dropout=0.3))
    check(model)
    assert (model.config.dropout, model.h[0].attn.dropout, model.drop.p) == (0.3, 0.3, 0.3)


# --- which part of a tensor a law speaks about


@pytest.mark.parametrize(
    ("shape", "kept"),
    [
        ((3, 7, 4), (3, 2, 4)),
        ((3, 4, 7), (3, 4, 2)),
        ((3, 2, 7, 7), (3, 2, 2, 2)),
        ((21, 4), (3, 2, 4)),
        ((7, 3, 4), (2, 3, 4)),
        ((6, 7, 4), (6, 2, 4)),
        ((3, 4), None),
        ((), None),
    ],
)
def test_the_prefix_is_found_by_the_number_of_positions(shape, kept):
    part = prefix_of(2)(torch.zeros(shape), Case(inputs=None, batch=3, seq=7))
    assert (None if part is None else tuple(part.shape)) == kept


@pytest.mark.parametrize(
    ("shape", "kept"),
    [((3, 7), (1, 7)), ((12, 7), (4, 7)), ((7, 3, 4), (7, 1, 4)), ((7, 4), None), ((), None)],
)
def test_the_first_row_is_found_by_the_size_of_the_batch(shape, kept):
    part = first_row(torch.zeros(shape), Case(inputs=None, batch=3, seq=7))
    assert (None if part is None else tuple(part.shape)) == kept


# --- words and errors


def test_a_report_in_words():
    broken = CheckReport(
        law="causality", ok=False, max_change=0.03, output_std=0.3, first_violation="h.0", done="changing positions 4 to 8"
    )  # fmt: skip
    assert str(broken) == (
        "causality: broken; changing positions 4 to 8 changes the output by up to 0.03, 0.1 of its spread; first in h.0"
    )
    fine = CheckReport(law="length", ok=True, max_change=1e-7, done="leaving out position 8")
    assert str(fine) == "length: holds; leaving out position 8 changes the output by at most 1e-07"
    assert str(CheckReport(law="length", ok=None, note="why")) == "length: does not apply (why)"


def test_a_model_without_an_embedding_needs_inputs():
    assert lines_of(ModelError, lambda: check_causality(nn.Linear(2, 2))) == [
        "Linear has no nn.Embedding, so its inputs cannot be guessed.",
        "Pass inputs=: a tensor [batch, seq, ...], a tuple of arguments or a mapping of keywords.",
    ]


def test_what_is_no_module_is_refused():
    assert lines_of(ModelError, lambda: check(abs))[0] == (
        "A check calls an nn.Module, got builtin_function_or_method."
    )


@pytest.mark.parametrize("inputs", [3, (), {}, (1, 2), torch.tensor(3)])
def test_inputs_without_a_tensor_are_refused(inputs):
    first, second = lines_of(ModelError, lambda: check(stack(), inputs))
    assert first.endswith("without a tensor that has a batch axis.")
    assert second.startswith("Pass a tensor [batch, seq, ...]")


def test_an_output_without_positions_is_refused():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = stack()

        def forward(self, tokens):
            return self.inner(tokens)[:, -1]

    first, second = lines_of(ModelError, lambda: check_causality(Last()))
    assert first == "The output of shape [3, 17] has no axis of the inputs' 29 positions."
    assert "(tokens, targets)" in second


def test_a_call_that_fails_says_on_what():
    first, second = lines_of(ModelError, lambda: check(stack(), torch.zeros(2, 5, DIM)))
    assert first.startswith("Sequential cannot be called on [3, 5, 12] in eval mode:")
    assert second.startswith("Pass inputs= as the model takes them")


def test_an_output_with_nans_is_refused():
    first, second = lines_of(ModelError, lambda: check_causality(Functional(lambda x: x / 0 * 0)))
    assert first == "The model's output has NaNs, which cannot be compared."
    assert second.startswith("Check the weights")


def test_an_output_without_tensors_is_refused():
    class Nothing(nn.Embedding):
        def forward(self, tokens):
            return "logits"

    assert lines_of(ModelError, lambda: check(Nothing(4, 2)))[0] == (
        "The output of Nothing, a str, has no tensor to compare."
    )


def test_a_vocabulary_of_one_is_refused():
    assert lines_of(ModelError, lambda: check(nn.Embedding(1, 2)))[0] == (
        "The model's first embedding knows 1 id, so no token can be changed."
    )


def test_an_unknown_law_suggests_the_nearest():
    first, second = lines_of(UnknownNameError, lambda: check(stack(), laws=["causalty"]))
    assert first == "There is no law 'causalty'."
    assert second.startswith("Did you mean 'causality'?")


def test_a_choice_of_laws_is_all_that_is_checked():
    assert list(check(stack(), laws=["batch"])) == ["batch"]
