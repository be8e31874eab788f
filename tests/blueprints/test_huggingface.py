"""Tests of models of the ``transformers`` library: triplepoint.blueprints.huggingface."""

import json

import pytest
import torch

from triplepoint.blueprints import Shape, blueprint_of, load, save
from triplepoint.errors import ModelError, PlanError
from triplepoint.ops import DyT
from triplepoint.surgery import swap_norms

transformers = pytest.importorskip("transformers")

LLAMA = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "vocab_size": 256, "max_position_embeddings": 32, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def llama(tmp_path):
    """A folder with a configuration only."""
    folder = tmp_path / "llama"
    transformers.LlamaConfig(**LLAMA, architectures=["LlamaForCausalLM"]).save_pretrained(folder)
    return folder


def test_a_folder_and_its_file_are_the_same_model(llama):
    folder, file = blueprint_of(llama), blueprint_of(llama / "config.json")
    assert folder.identity == file.identity
    assert folder.context == 32
    model = folder.build(Shape(vocab=256, context=32))
    assert type(model) is transformers.LlamaForCausalLM
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert folder.trained() is None


def test_another_configuration_has_another_identity(llama):
    before = blueprint_of(llama).identity
    transformers.LlamaConfig(**{**LLAMA, "rms_norm_eps": 1e-3}).save_pretrained(llama)
    assert blueprint_of(llama).identity != before


def test_a_model_without_a_named_architecture_is_the_causal_one(tmp_path):
    transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=256).save_pretrained(
        tmp_path
    )
    assert type(blueprint_of(tmp_path).build()) is transformers.GPT2LMHeadModel


def test_weights_in_the_folder_are_loaded_in_their_own_dtype(llama):
    model = blueprint_of(llama).build().bfloat16()
    model.save_pretrained(llama)
    again = blueprint_of(llama).trained()
    assert again.dtype == torch.bfloat16
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("with_weights", [True, False])
def test_a_swapped_model_survives_the_disk(llama, tmp_path, with_weights):
    torch.manual_seed(0)
    blueprint = blueprint_of(llama)
    if with_weights:
        blueprint.build().save_pretrained(llama)
    model = blueprint.model()
    report = swap_norms(model, "dyt:recommended")
    with torch.no_grad():
        for op in model.modules():
            if isinstance(op, DyT):
                op.alpha.fill_(0.7)
    save(tmp_path / "swapped", model, blueprint, report)
    again = load(tmp_path / "swapped")
    tokens = torch.arange(10)[None]
    assert torch.equal(again(tokens).logits, model.eval()(tokens).logits)
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert [round(m.alpha.item(), 4) for m in again.modules() if isinstance(m, DyT)] == [0.7] * 5
    # the folder is a MODEL as well
    assert torch.equal(
        blueprint_of(tmp_path / "swapped").trained()(tokens).logits, model(tokens).logits
    )


@pytest.mark.parametrize(
    ("shape", "problem", "remedy"),
    [
        (Shape(vocab=257), "has a vocabulary of 256, the data one of 257", "--tokenizer"),
        (Shape(context=33), "takes 32 tokens at most, 33 are asked for", "Try --context 32"),
        (Shape(dropout=0.1), "dropout 0.1 cannot be set", "Change it in"),
        (Shape(image=(8, 1, 10)), "reads tokens, the data are images", "Choose a vit size"),
    ],
)  # fmt: skip
def test_a_shape_that_does_not_fit_says_why(llama, shape, problem, remedy):
    with pytest.raises(PlanError) as raised:
        blueprint_of(llama).build(shape)
    first, second = str(raised.value).split("\n", 1)
    assert problem in first and remedy in second


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"model_type": "no_such_model"}, "no configuration that transformers"),
        ({}, "no configuration that transformers"),
        ({"auto_map": {"AutoConfig": "code.Config"}}, "has code of its own"),
        ({"model_type": "vit"}, "has no causal language model"),
        ({"model_type": "llama", **LLAMA, "num_attention_heads": 3}, ""),
    ],
)  # fmt: skip
def test_a_configuration_that_builds_nothing_says_why(tmp_path, values, problem):
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ModelError) as raised:
        blueprint_of(tmp_path).build()
    assert problem in str(raised.value)
    assert "\n" in str(raised.value)


def test_a_damaged_file_of_weights_is_named(llama):
    (llama / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(
        ModelError, match="The weights in .* cannot be read: .*\nDownload them again"
    ):
        blueprint_of(llama).trained()


def test_weights_of_another_model_are_refused(llama, tmp_path):
    """transformers would give the tensors that are not there the values of a new model."""
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).save_pretrained(llama)
    assert blueprint_of(llama).trained() is not None  # the tied head is not missing
    transformers.LlamaConfig(**{**LLAMA, "hidden_size": 32}).save_pretrained(llama)
    with pytest.raises(ModelError, match=r"do not fit its config.json: \d+ tensors .*\nDownload"):
        blueprint_of(llama).trained()
    config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=256)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    (tmp_path / "gpt2" / "model.safetensors").replace(llama / "model.safetensors")
    with pytest.raises(ModelError, match=r"do not fit its config.json: \d+ tensors .*\nDownload"):
        blueprint_of(llama).trained()


def test_a_configuration_beside_another_one_has_not_its_weights(llama):
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)).save_pretrained(llama)
    values = json.loads((llama / "config.json").read_text())
    (llama / "other.json").write_text(json.dumps({**values, "num_hidden_layers": 1}))
    other = blueprint_of(llama / "other.json")
    assert other.trained() is None
    assert len(other.model().model.layers) == 1


def test_an_architecture_that_is_no_model_is_not_called(llama):
    values = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps({**values, "architectures": ["pipeline"]}))
    assert type(blueprint_of(llama).build()) is transformers.LlamaForCausalLM
