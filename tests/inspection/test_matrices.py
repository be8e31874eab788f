"""Which matrices a tensor is: from a name and a shape on disk, from a module in memory."""

import pytest
import torch
from torch import nn

from triplepoint.inspection.matrices import matrices_of
from triplepoint.inspection.sources import TensorInfo, source_of


def info(name, *shape, dtype="float32", kind="unknown"):
    return TensorInfo(name=name, shape=shape, dtype=dtype, kind=kind)


def found(tensor_info, *, split=False, max_side=100, **config):
    return matrices_of(tensor_info, split_qkv=split, config=config, max_side=max_side)


@pytest.mark.parametrize(
    ("name", "shape", "kind", "as_measured"),
    [
        ("h.0.mlp.c_fc.weight", (8, 4), "matrix", (8, 4)),
        ("wte.weight", (9, 4), "embedding", (9, 4)),
        ("model.embed_tokens.weight", (9, 4), "embedding", (9, 4)),
        ("bert.embeddings.word_embeddings.weight", (9, 4), "embedding", (9, 4)),
        ("vit.pos_embed", (1, 9, 4), "embedding", (9, 4)),
        ("conv1.weight", (8, 4, 1), "conv", (8, 4)),
        ("conv1.weight", (8, 4, 3), "conv", (8, 12)),
        ("patch.proj.weight", (8, 3, 2, 2), "conv", (8, 12)),
        ("stem.weight", (8, 3, 2, 2, 2), "conv", (8, 24)),
        ("depthwise.weight", (8, 1, 3, 3), "conv", (8, 9)),
        # transformers' Conv1D keeps [in, out]; only a fused projection shows it
        ("h.0.attn.c_attn.weight", (4, 12), "linear", (12, 4)),
        ("h.0.attn.c_attn.weight", (12, 4), "matrix", (12, 4)),
        ("self_attn.in_proj_weight", (12, 4), "matrix", (12, 4)),
        ("lora_A.weight", (2, 8), "matrix", (2, 8)),
    ],
)
def test_a_tensor_on_disk_is_one_matrix(name, shape, kind, as_measured):
    (matrix,) = found(info(name, *shape))
    assert (matrix.kind, matrix.shape) == (kind, as_measured)
    assert matrix.name == name.removesuffix(".weight")
    assert matrix.take(torch.zeros(shape)).shape == as_measured


def test_unfolding_keeps_one_row_an_output_channel():
    weight = torch.randn(8, 3, 2, 2)
    (matrix,) = found(info("c.weight", 8, 3, 2, 2))
    assert torch.equal(matrix.take(weight)[5], weight[5].flatten())


@pytest.mark.parametrize("name", ["mlp.experts.gate_up_proj", "block.expert.w1.weight"])
def test_each_expert_is_a_matrix(name):
    matrices = found(info(name, 3, 4, 8))
    weight = torch.randn(3, 4, 8)
    assert [m.name for m in matrices] == [f"{name.removesuffix('.weight')}[{i}]" for i in range(3)]
    for index, matrix in enumerate(matrices):
        assert (matrix.kind, matrix.shape) == ("expert", (4, 8))
        assert torch.equal(matrix.take(weight), weight[index])


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (info("ln.weight", 8), "a vector: it has no spectrum"),
        (info("alpha", 1), "a single number"),
        (info("step"), "a single number"),
        (info("cls_token", 1, 1, 8), "a vector: one of its sides is 1"),
        (info("l.weight", 8, 1), "a vector: one of its sides is 1"),
        (info("l.weight", 0, 8), "empty"),
        (info("ids", 8, 8, dtype="int64"), "of dtype int64: not weights, or packed in a way that is not known"),
        (info("w", 8, 8, dtype="complex64"), "of dtype complex64: not weights, or packed in a way that is not known"),
        (info("h.0.attn.bias", 1, 1, 9, 9), "an attention mask, not weights"),
        (info("causal_mask", 1, 1, 9, 9), "an attention mask, not weights"),
        (info("bilinear.w", 3, 4, 5), "3 axes, and neither a convolution's nor experts': which make a matrix is not known"),
        (info("head.weight", 200, 101), "its smaller side, 101, is over max_side=100: its eigenvalues would take 0.0 GiB"),
    ],
)  # fmt: skip
def test_what_is_no_matrix_has_a_reason(tensor, reason):
    assert found(tensor) == reason


# --- q, k and v


@pytest.mark.parametrize(
    ("name", "turned"),
    [("attn.c_attn.weight", True), ("attn.c_attn.weight", False), ("attn.qkv.weight", False),
     ("attn.in_proj_weight", False), ("Wqkv.weight", False)],
)  # fmt: skip
def test_fused_projections_are_split_on_request(name, turned):
    q, k, v = torch.randn(3, 4, 4)
    weight = torch.cat([q, k, v])
    weight = weight.T if turned else weight
    assert len(found(info(name, *weight.shape))) == 1
    parts = found(info(name, *weight.shape), split=True)
    assert [m.name for m in parts] == [f"{name.removesuffix('.weight')}[{p}]" for p in "qkv"]
    for matrix, expected in zip(parts, (q, k, v), strict=True):
        assert matrix.shape == (4, 4)
        assert torch.equal(matrix.take(weight), expected)


@pytest.mark.parametrize(
    "names", [("num_attention_heads", "num_key_value_heads"), ("heads", "kv_heads")]
)
def test_shared_keys_are_split_by_the_numbers_of_heads(names):
    # 4 query heads and 2 key heads of size 3: rows 0-11 q, 12-17 k, 18-23 v
    weight = torch.arange(24.0)[:, None].expand(24, 12)
    config = dict(zip(names, (4, 2), strict=True))
    parts = found(info("qkv_proj.weight", 24, 12), split=True, **config)
    assert [m.take(weight)[[0, -1], 0].tolist() for m in parts] == [[0, 11], [12, 17], [18, 23]]


def test_q_k_and_v_that_alternate_by_head_are_gathered():
    # NeoX: rows of head 0 are q0 q1 k0 k1 v0 v1, then head 1
    weight = torch.arange(12.0)[:, None].expand(12, 4)
    parts = found(
        info("query_key_value.weight", 12, 4),
        split=True,
        num_attention_heads=2,
        model_type="gpt_neox",
    )
    assert [m.take(weight)[:, 0].tolist() for m in parts] == [
        [0, 1, 6, 7],
        [2, 3, 8, 9],
        [4, 5, 10, 11],
    ]


@pytest.mark.parametrize(
    ("tensor", "config"),
    [(info("query_key_value.weight", 12, 4), {}), (info("qkv_proj.weight", 25, 12), {"heads": 4, "kv_heads": 2}),
     (info("qkv_proj.weight", 12, 4), {"model_type": "codegen"}),
     (info("c_attn.weight", 12, 8), {"heads": 4, "multi_query": True}), (info("c_fc.weight", 12, 4), {})],
    ids=["unknown order", "rows do not add up", "another order", "one key head, not said how", "not fused"],
)  # fmt: skip
def test_what_cannot_be_split_stays_whole(tensor, config):
    assert len(found(tensor, split=True, **config)) == 1


# --- live models


class Conv1D(nn.Module):
    """What transformers' class of this name holds."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.turned = Conv1D(8, 4)
        self.deconv = nn.ConvTranspose1d(3, 4, 2)
        self.head = nn.Linear(4, 9)
        self.head.weight = self.table.weight
        self.again = self.head
        self.register_buffer("mean", torch.zeros(4, 4))
        self.narrow = nn.Parameter(torch.randn(3, 3).bfloat16())
        self.nowhere = nn.Linear(2, 2, device="meta")


def test_a_live_model_tells_kinds_by_its_modules_and_names_every_tensor():
    model = Model()
    source = source_of(model)
    assert {t.name for t in source.tensors} == {
        *model.state_dict(), "again.weight", "again.bias",
    }  # fmt: skip
    told = {t.name: (t.kind, t.reason) for t in source.tensors}
    assert told["table.weight"] == ("embedding", None)
    assert told["turned.weight"] == ("transposed", None)
    assert told["deconv.weight"] == ("conv", None)
    assert told["head.weight"] == ("linear", "the same tensor as table.weight")
    assert told["again.weight"] == ("linear", "the same tensor as table.weight")
    assert told["mean"] == ("unknown", "a buffer, not trained")
    assert told["nowhere.weight"] == ("linear", "on the meta device: it has no numbers")
    assert source.read("narrow").dtype == torch.float32
    assert not source.read("turned.weight").requires_grad


def test_transformers_conv1d_is_turned():
    model = Model()
    turned = next(t for t in source_of(model).tensors if t.name == "turned.weight")
    (matrix,) = found(turned)
    assert matrix.shape == (8, 4)
    assert torch.equal(matrix.take(model.turned.weight), model.turned.weight.T)
