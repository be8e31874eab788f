"""Inspecting weights: hand-worked spectra, every form of matrix, and the failures that people reported of others."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from triplepoint.errors import CheckpointError, UnknownNameError
from triplepoint.inspection import (
    DEFINITIONS,
    WEIGHT_METRICS,
    inspect_checkpoint,
    inspect_steps,
    inspect_weights,
)
from triplepoint.models import GPT2, GPT2Config
from triplepoint.weights import open_checkpoint, save_tensors

FAST = {"bootstrap": 0, "null": False}


def test_two_tensors_whose_names_differ_in_their_ending_are_two_matrices():
    model = nn.ParameterDict()
    tensors = {"a": torch.eye(2), "a.weight": 2 * torch.eye(2), ".weight": 3 * torch.eye(2)}
    model._parameters.update({name: nn.Parameter(t) for name, t in tensors.items()})
    found = inspect_weights(model, metrics=["log_spectral_norm"], **FAST)
    assert {m.name: round(m.values["log_spectral_norm"], 4) for m in found.measured} == {
        "a": 0.0, "a.weight": 0.6021, ".weight": 0.9542,
    }  # fmt: skip


def test_a_matrix_of_low_rank_has_no_bulk_and_so_no_count_of_spikes():
    model = nn.Linear(4, 4, bias=False)
    model.weight.data = torch.diag(torch.tensor([5.0, 3.0, 0.0, 0.0]))
    (layer,) = inspect_weights(model, **FAST).measured
    assert "spikes" not in layer.values and "bulk_edge" not in layer.values
    told = "half of the eigenvalues or more are 0: there is no bulk of noise"
    assert layer.reasons["spikes"] == layer.reasons["bulk_edge"] == told


def with_spectrum(sigma, *, rows=None, columns=None):
    """A dense matrix whose singular values are exactly ``sigma``."""
    left, _ = torch.linalg.qr(torch.randn(rows or len(sigma), len(sigma), dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(columns or len(sigma), len(sigma), dtype=torch.float64))
    return (left * torch.as_tensor(sigma, dtype=torch.float64)) @ right.T


def heavy(exponent=3.0):
    """A 600 x 200 matrix: 140 eigenvalues below 1, 60 the quantiles of a Pareto law of this density exponent."""
    quantiles = (torch.arange(60, dtype=torch.float64) + 0.5) / 60
    tail = quantiles ** (-1 / (exponent - 1))
    bulk = torch.linspace(0.5, 0.9, 140, dtype=torch.float64)
    return with_spectrum(torch.cat([bulk, tail]).sqrt(), rows=600).float()


def saved(path, **tensors):
    save_file({n.replace("__", "."): t.contiguous() for n, t in tensors.items()}, path)
    return path


def layer_of(inspection, name):
    return next(layer for layer in inspection.measured if layer.name == name)


# --- values


def test_values_are_those_worked_by_hand(tmp_path):
    # sigma 3, 1: eigenvalues 9, 1; p = 3/4, 1/4 and 9/10, 1/10
    path = saved(tmp_path / "w", l__weight=with_spectrum([3.0, 1.0], rows=5).float())
    (layer,) = inspect_weights(path, **FAST).measured
    entropy = lambda p: -sum(v * math.log(v) for v in p)  # noqa: E731
    assert {m: layer.values[m] for m in WEIGHT_METRICS[-8:]} == pytest.approx(
        {
            "stable_rank": 10 / 9,
            "effective_rank": math.exp(entropy([0.75, 0.25])),
            "effective_rank_sq": math.exp(entropy([0.9, 0.1])),
            "participation_ratio": 100 / 82,
            "log_norm": 1.0,
            "log_spectral_norm": math.log10(9),
            "non_finite_rows": 0.0,
            "spikes": layer.values["spikes"],
        },
        rel=1e-5,
    )  # fmt: skip


def test_a_heavy_tail_is_found_with_its_interval_and_beats_its_null(tmp_path):
    (layer,) = inspect_weights(saved(tmp_path / "w", l__weight=heavy())).measured
    assert layer.values["tail_exponent"] == pytest.approx(3, abs=0.1)
    low, high = layer.intervals["tail_exponent"]
    assert low < 3 < high
    assert layer.values["null_tail_exponent"] > 3
    assert layer.values["heavy_tailed"] == 1


def test_records_say_what_was_measured_where(tmp_path):
    path = saved(tmp_path / "w", a__weight=heavy(), b__bias=torch.ones(3))
    records = inspect_checkpoint(path, step=7)
    exponent = next(r for r in records if r.metric == "tail_exponent")
    assert (exponent.site, exponent.step, exponent.n, exponent.unit) == ("a", 7, 200, "1")
    assert exponent.low < exponent.value < exponent.high
    assert {r.metric for r in records} == set(WEIGHT_METRICS) <= set(DEFINITIONS)
    assert all(r.unit == DEFINITIONS[r.metric]["unit"] for r in records)


def test_only_what_was_asked_for_is_given(tmp_path):
    path = saved(tmp_path / "w", a__weight=torch.randn(60, 60))
    records = inspect_checkpoint(path, ["stable_rank", "log_norm"])
    assert [r.metric for r in records] == ["stable_rank", "log_norm"]
    with pytest.raises(
        UnknownNameError, match=r"no metric of weights 'stable_rnk'.\nDid you mean 'stable_rank'\?"
    ):
        inspect_checkpoint(path, ["stable_rnk"])


def test_a_checkpoint_and_its_model_give_the_same_numbers(tmp_path):
    model = GPT2(GPT2Config(width=16, layers=1, heads=2, vocab=32, context=8))
    save_tensors(tmp_path / "w", model.state_dict())
    live = {(r.site, r.metric): r.value for r in inspect_checkpoint(model)}
    stored = {(r.site, r.metric): r.value for r in inspect_checkpoint(tmp_path / "w")}
    assert stored.keys() == live.keys()
    assert stored == pytest.approx(live)


def test_inspecting_leaves_a_model_and_a_mapped_file_alone(tmp_path):
    model = nn.Linear(60, 60)
    before = model.weight.detach().clone()
    inspect_weights(model, bootstrap=0)
    assert torch.equal(model.weight, before)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    checkpoint = open_checkpoint(tmp_path / "w.pt")
    inspect_weights(checkpoint, bootstrap=0)
    assert torch.equal(checkpoint.read("weight"), before)


def test_the_null_of_a_conv1d_or_a_part_is_of_its_own_entries(tmp_path):
    # stored [in, 3 out]: q is noise, k and v are rank one, so only shuffling q alone leaves its sum of squares
    weight = torch.randn(60, 180)
    weight[:, 60:] = torch.outer(torch.randn(60), torch.ones(120))
    path = saved(tmp_path / "w", **{"attn.c_attn.weight": weight})
    parts = inspect_weights(path, split_qkv=True, bootstrap=0).measured
    assert [p.name for p in parts] == [f"attn.c_attn[{p}]" for p in "qkv"]
    for part, block in zip(parts, weight.split(60, dim=1), strict=True):
        assert part.values["log_norm"] == pytest.approx(math.log10(block.square().sum()), rel=1e-5)
    assert parts[1].values["effective_rank"] == pytest.approx(1, abs=1e-2)
    assert parts[0].density.null_counts.sum() == 60


# --- every tensor appears


def test_every_tensor_is_measured_or_skipped_with_a_reason(tmp_path):
    tensors = {
        "wte.weight": torch.randn(9, 4), "lm_head.weight": torch.randn(9, 4), "ln.weight": torch.ones(4),
        "experts.w": torch.randn(2, 4, 8), "conv.weight": torch.randn(5, 3, 2, 2),
        "q.qweight": torch.zeros(1, 8, dtype=torch.int32), "q.qzeros": torch.zeros(1, 1, dtype=torch.int32),
        "f.weight": torch.ones(4, 4).to(torch.float8_e4m3fn), "f.weight_scale": torch.ones(1),
        "empty": torch.zeros(0, 3), "ids": torch.zeros(2, 2, dtype=torch.int64),
    }  # fmt: skip
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    inspection = inspect_weights(saved(tmp_path / "w", **tensors), **FAST)
    measured = {layer.tensor for layer in inspection.measured}
    reasons = {s.name: s.reason for s in inspection.skipped}
    assert measured | set(reasons) == set(tensors)
    assert not measured & set(reasons)
    assert measured == {"wte.weight", "experts.w", "conv.weight", "f.weight"}
    assert reasons["lm_head.weight"] == "the same tensor as wte.weight"
    assert reasons["q.qweight"] == "packed as AWQ or GPTQ"
    assert reasons["f.weight_scale"] == "a scale, table or zero point of f.weight"
    assert [layer.name for layer in inspection.measured if layer.kind == "expert"] == [
        "experts.w[0]",
        "experts.w[1]",
    ]


def test_what_cannot_be_read_is_skipped_and_the_rest_goes_on(tmp_path, monkeypatch):
    path = saved(tmp_path / "w", a__weight=torch.randn(9, 9), b__weight=torch.randn(4, 4))
    monkeypatch.setattr("triplepoint.weights.checkpoint.physical_memory", lambda: 100)
    inspection = inspect_weights(path, **FAST)
    assert [layer.name for layer in inspection.measured] == ["b"]
    assert inspection.skipped[0].reason.startswith(f"a.weight in {path} needs 0.0 GiB, more than")


def test_progress_reaches_the_end(tmp_path):
    told = []
    path = saved(
        tmp_path / "w", a__weight=torch.randn(9, 4), b__weight=torch.randn(8, 8), c=torch.ones(2)
    )
    inspect_weights(path, **FAST, progress=lambda *state: told.append(state))
    # m n k + 9 k^3: 9 * 4 * 4 + 9 * 64 = 720, 8^3 + 9 * 8^3 = 5120
    assert told == [("a", 720, 5840), ("b", 5840, 5840)]


# --- density


def test_the_histogram_holds_every_eigenvalue_it_does_not_leave_out(tmp_path):
    path = saved(
        tmp_path / "w",
        a__weight=torch.randn(80, 60),
        b__weight=with_spectrum([1.0] * 30 + [0.0] * 30).float(),
    )
    inspection = inspect_weights(path, bootstrap=0)
    full, half = (layer_of(inspection, name).density for name in "ab")
    assert (full.counts.sum(), full.left_out) == (60, 0)
    assert (half.counts.sum(), half.left_out) == (30, 30)
    assert full.null_counts.sum() == 60
    steps = np.diff(np.log(full.edges))
    assert steps == pytest.approx(np.full(100, steps[0]), rel=1e-6)
    arrays = inspection.arrays()
    assert set(arrays) == {
        f"density|{n}|{p}" for n in "ab" for p in ("edges", "counts", "null_counts")
    }


# --- failures reported of other tools, by their row


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str
)
def test_row_46_narrow_floats_are_measured(tmp_path, dtype):
    weight = torch.randn(80, 60)
    narrow, wide = (
        inspect_weights(saved(tmp_path / "w", l__weight=w), **FAST).measured[0].values
        for w in (weight.to(dtype), weight)
    )
    # bfloat16 has 8 bits: a relative error of 0.2 % an entry; e5m2 has 3 bits: 6 %
    tolerance = 0.01 if dtype.itemsize == 2 else 0.05
    for metric in ("effective_rank", "stable_rank", "participation_ratio"):
        assert narrow[metric] == pytest.approx(wide[metric], rel=tolerance)


def test_row_48_tiny_layers_each_have_a_row_and_a_reason():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    inspection = inspect_weights(model)
    assert [layer.name for layer in inspection.measured] == ["0", "1"]
    assert [layer.reasons["tail_exponent"] for layer in inspection.measured] == [
        "4 positive eigenvalues, fewer than 50", "2 positive eigenvalues, fewer than 50",
    ]  # fmt: skip
    assert all("effective_rank" in layer.values for layer in inspection.measured)
    assert {s.name for s in inspection.skipped} == {"0.bias", "1.bias"}


@pytest.mark.parametrize(
    "layout", ["checkpoints/step-{:06d}", "checkpoint-{}"], ids=["ours", "Trainer"]
)
def test_row_50_a_run_folder_gives_the_trajectory_without_a_verdict(tmp_path, layout):
    for step, exponent in ((10, 4.0), (20, 2.5), (30, 3.0)):
        folder = tmp_path / layout.format(step)
        folder.mkdir(parents=True)
        saved(folder / "model.safetensors", l__weight=heavy(exponent=exponent))
    inspections = inspect_steps(tmp_path, **FAST)
    assert [i.step for i in inspections] == [10, 20, 30]
    records = inspect_checkpoint(tmp_path, ["tail_exponent"], **FAST)
    assert [r.step for r in records] == [10, 20, 30]
    assert [r.value for r in records] == pytest.approx([4, 2.5, 3], abs=0.15)
    told = json.dumps([DEFINITIONS, [i.measured[0].reasons for i in inspections]])
    assert not any(word in told for word in ("worse", "better", "under-trained", "over-trained"))


def test_row_51_a_matrix_over_the_cap_is_skipped_with_its_price(tmp_path):
    path = saved(
        tmp_path / "w", wte__weight=torch.randn(300, 40), big__weight=torch.randn(120, 110)
    )
    inspection = inspect_weights(path, max_side=100, **FAST)
    assert [layer.name for layer in inspection.measured] == ["wte"]
    assert inspection.skipped[0].reason == (
        "its smaller side, 110, is over max_side=100: its eigenvalues would take 0.0 GiB"
    )


MEMORY = """
import sys, torch
from tests.fuzz.damaged import forget_peak, peak_rss
from triplepoint.inspection import inspect_weights
torch.set_num_threads(1)
null = sys.argv[3] == "null"
inspect_weights(sys.argv[1], bootstrap=0, null=null)
forget_peak()
before = peak_rss()
found = inspect_weights(sys.argv[2], bootstrap=0, null=null)
print(peak_rss() - before, len(found.measured))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("form", "null"),
    [
        ("safetensors", "no null"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("torch", "no null"), ("safetensors", "null"), ("torch", "null"))
        ),
    ],
)
def test_row_51_memory_is_the_largest_tensor_and_its_gram_matrix(tmp_path, form, null):
    side, rows = 256, 2**17
    small, large = tmp_path / "small", tmp_path / "large"
    saved(small, l__weight=torch.randn(300, 200))
    # two of them: the first must be gone before the second is read. float32 copies of 128 MiB
    weight = torch.randn(rows, side).bfloat16()
    state = {"a.weight": weight, "b.weight": weight.clone()}
    save_file(state, large) if form == "safetensors" else torch.save(state, large)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, small, large, null], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    grown, measured = map(int, done.stdout.split())
    assert measured == 2
    # pages of a mapped torch file count as used, though the system takes them back when it needs them
    mapped = large.stat().st_size if form == "torch" else 0
    assert grown - mapped <= 4 * rows * side + 24 * side**2 + 64 * 2**20


def test_row_53_inspecting_needs_the_core_dependencies_only(tmp_path):
    path = saved(tmp_path / "w", l__weight=torch.randn(60, 60))
    barred = [
        "pandas",
        "scipy",
        "sklearn",
        "matplotlib",
        "powerlaw",
        "weightwatcher",
        "transformers",
        "datasets",
    ]
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({barred}))\n"
        "from triplepoint.inspection import inspect_weights\n"
        f"print(len(inspect_weights({str(path)!r}, bootstrap=5).measured))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("1", "")


@pytest.mark.parametrize("side", [10, 30, 49])
def test_row_55_too_few_eigenvalues_give_no_exponent(side):
    (layer,) = inspect_weights(nn.Linear(80, side, bias=False)).measured
    assert not {"tail_exponent", "weighted_tail_exponent"} & set(layer.values)
    assert layer.reasons["tail_exponent"] == f"{side} positive eigenvalues, fewer than 50"


DEGENERATE = {
    "orthogonal": torch.linalg.qr(torch.randn(80, 80, generator=torch.Generator().manual_seed(0)))[0],
    "identity": torch.eye(70),
    "zero": torch.zeros(70, 60),
    "rank one": torch.outer(torch.arange(1.0, 71), torch.ones(60)),
    "duplicated": torch.diag(torch.arange(1.0, 5).repeat_interleave(20)),
    "one entry": torch.zeros(60, 60).index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(1.0)),
    "subnormal": torch.full((60, 60), 1e-40),
    "huge": torch.full((60, 60), 1e30),
}  # fmt: skip


@pytest.mark.parametrize("kind", DEGENERATE)
def test_row_56_degenerate_matrices_give_reasons_and_no_nan(tmp_path, kind):
    (layer,) = inspect_weights(saved(tmp_path / "w", l__weight=DEGENERATE[kind])).measured
    assert all(math.isfinite(value) for value in layer.values.values())
    assert set(layer.values) | set(layer.reasons) == set(WEIGHT_METRICS)
    assert layer.values["heavy_tailed"] == 0
    # four distinct values are enough for a fit, if not for much of one
    assert ("tail_exponent" in layer.reasons) == (kind != "duplicated")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_row_57_a_bad_row_is_counted_left_out_and_the_run_goes_on(tmp_path, bad):
    weight = torch.randn(70, 60)
    spoilt = torch.cat([weight, torch.ones(1, 60)])
    spoilt[-1, 3] = bad
    path = saved(tmp_path / "w", bad__weight=spoilt, good__weight=weight)
    found = inspect_weights(path, bootstrap=0)
    spoilt, good = (layer_of(found, name).values for name in ("bad", "good"))
    assert (spoilt.pop("non_finite_rows"), good.pop("non_finite_rows")) == (1, 0)
    assert spoilt == pytest.approx(good)


def test_row_57_nothing_finite_and_nothing_at_all_have_reasons(tmp_path):
    path = saved(
        tmp_path / "w", nan__weight=torch.full((60, 60), math.nan), none__weight=torch.zeros(0, 60)
    )
    inspection = inspect_weights(path)
    (layer,) = inspection.measured
    assert layer.values == {"non_finite_rows": 60}
    assert set(layer.reasons) == set(WEIGHT_METRICS) - {"non_finite_rows"}
    assert inspection.skipped[0].reason == "empty"


@pytest.mark.parametrize("shape", [(64, 64), (256, 256), (200, 600)])
def test_row_58_a_random_matrix_is_not_called_heavy_tailed(tmp_path, shape):
    (layer,) = inspect_weights(
        saved(tmp_path / "w", l__weight=torch.randn(shape)), bootstrap=0
    ).measured
    assert layer.values["heavy_tailed"] == 0
    assert "null_tail_exponent" in layer.values or "null_tail_exponent" in layer.reasons


def test_row_62_a_hugging_face_folder_is_inspected_as_it_is(tmp_path):
    save_file({"h.0.attn.c_attn.weight": torch.randn(4, 12)}, tmp_path / "one.safetensors")
    save_file({"wte.weight": torch.randn(9, 4)}, tmp_path / "two.safetensors")
    weight_map = {"h.0.attn.c_attn.weight": "one.safetensors", "wte.weight": "two.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_head": 2}))
    found = inspect_weights(tmp_path, split_qkv=True, **FAST).measured
    assert [layer.name for layer in found] == [
        "h.0.attn.c_attn[q]", "h.0.attn.c_attn[k]", "h.0.attn.c_attn[v]", "wte",
    ]  # fmt: skip


def test_a_missing_path_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="There is no file or folder"):
        inspect_weights(tmp_path / "none")
