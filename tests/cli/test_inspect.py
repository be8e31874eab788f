"""Tests of ``triplepoint inspect``."""

import json
import os
import pickle
import shutil
import sys

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

from triplepoint.inspection import WEIGHT_METRICS
from triplepoint.recipes import Recipe
from triplepoint.records import from_line, read_jsonl
from triplepoint.sweeps.cells import Cell, DataSpec, run_cell

FEW = ("--bootstrap", 0, "--metrics", "stable_rank,spikes")


@pytest.fixture
def checkpoint(tmp_path):
    """A file with a heavy-tailed matrix, noise, a small matrix and vectors."""
    generator = torch.Generator().manual_seed(0)
    sigma = torch.cat([torch.linspace(0.7, 0.95, 140), ((torch.arange(60) + 0.5) / 60) ** -0.25])
    left, right = (torch.linalg.qr(torch.randn(n, 200, generator=generator))[0] for n in (600, 200))
    tensors = {
        "h.0.mlp.c_fc.weight": (left * sigma) @ right.T,
        "h.0.attn.c_proj.weight": torch.randn(100, 100, generator=generator),
        "wte.weight": torch.randn(40, 30, generator=generator),
        "h.0.ln.weight": torch.ones(200), "h.0.ln.bias": torch.ones(200), "n": torch.tensor(3),
    }  # fmt: skip
    save_file(tensors, tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


@pytest.fixture(scope="module")
def once_trained(tmp_path_factory):
    """A run folder with two checkpoints, as ``triplepoint train`` leaves it, and its text."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text("".join(f"{i}: {i * i} foxes\n" for i in range(2000)))
    spec = DataSpec(path=str(folder / "text.txt"), context=16)
    recipe = Recipe(steps=2, batch=2, warmup=1, eval_steps=(1, 2), checkpoint_every=1)
    run_cell(
        Cell(path=folder / "run", arm="dyt", op="dyt", size="gpt2-0.1m", data=spec, recipe=recipe)
    )
    return folder


@pytest.fixture
def trained(once_trained, tmp_path):
    """A copy of it, to damage."""
    return shutil.copytree(once_trained / "run", tmp_path / "run")


# --- what is shown


def test_the_table_has_the_most_notable_first_and_the_reasons(command, checkpoint):
    code, out, err = command("inspect", checkpoint, "--bootstrap", 40)
    assert (code, err) == (0, "")
    assert out.startswith(f"{checkpoint}: 1 of 3 matrices is heavy-tailed.\n")
    assert "Most notable first: rows that are not finite; tails heavier" in out
    first, *others = [line for line in out.splitlines() if " x " in line]
    assert first.split()[:4] == ["h.0.mlp.c_fc", "600", "x", "200"]
    assert "[" in first and "yes" in first
    assert any("wte" in line and "30 eigenvalues < 50" in line for line in others)
    assert (
        "Not measured: 3 tensors\n     2  a vector: it has no spectrum\n     1  a single number"
        in out
    )
    assert "h.0.ln.weight" not in out
    for claim in ("over-trained", "under-trained", "overtrained", "undertrained"):
        assert claim not in out


def test_verbose_lists_every_skipped_tensor(command, checkpoint):
    _, out, _ = command("inspect", checkpoint, *FEW, "--verbose")
    assert "  h.0.ln.weight [200]: a vector: it has no spectrum" in out


def test_json_is_the_records_and_nothing_else(command, checkpoint):
    code, out, _ = command("inspect", checkpoint, "--bootstrap", 0, "--json", "--out", "run")
    assert code == 0
    records = [from_line(line) for line in out.splitlines()]
    assert records == read_jsonl("run/records.jsonl")
    assert {r.site for r in records} == {"h.0.mlp.c_fc", "h.0.attn.c_proj", "wte"}
    assert {r.metric for r in records} == set(WEIGHT_METRICS)
    files = {"manifest.json", "records.jsonl", "records.parquet", "arrays.npz", "report.html"}
    assert files <= set(os.listdir("run"))


def test_the_default_folder_is_found_again(command, checkpoint, monkeypatch):
    _, first, _ = command("inspect", checkpoint, *FEW)
    (folder,) = os.listdir("runs")
    assert folder.startswith("inspect-")
    monkeypatch.setattr("triplepoint.inspection.folders.inspect_weights", None)
    assert command("inspect", checkpoint, *FEW) == (0, first, "")
    assert os.listdir("runs") == [folder]


def test_only_the_metrics_that_are_named(command, checkpoint):
    _, out, _ = command("inspect", checkpoint, "--json", *FEW)
    assert {from_line(line).metric for line in out.splitlines()} == {"stable_rank", "spikes"}


def test_eighty_columns_keep_the_exponent_and_leave_out_what_does_not_fit(
    command, checkpoint, monkeypatch
):
    monkeypatch.setattr(
        "triplepoint.cli._inspected.console", lambda **_: Console(file=sys.stdout, width=80)
    )
    _, out, _ = command("inspect", checkpoint, "--bootstrap", 0)
    head = next(line for line in out.splitlines() if line.startswith("matrix"))
    assert head.split() == ["matrix", "shape", "exponent", "heavy", "spikes", "rank"]
    assert "tail of " in out


def test_a_checkpoint_compared_with_itself_is_said_not_to_differ(command, checkpoint):
    _, out, _ = command("inspect", checkpoint, "--compare", checkpoint, *FEW)
    assert "Nothing that was measured differs, in any of the 3 matrices that both have." in out


def test_a_split_that_was_asked_for_and_not_made_is_told(command, checkpoint):
    _, out, _ = command("inspect", checkpoint, "--split-qkv", *FEW)
    assert "Nothing was split: no fused q, k, v, or no numbers of heads that tell which" in out


def test_rows_that_are_not_finite_come_first(command, tmp_path):
    w = torch.randn(60, 60)
    w[:2, 0] = torch.inf
    save_file({"bad.weight": w, "good.weight": torch.eye(60)}, tmp_path / "w")
    code, out, _ = command("inspect", "w", "--bootstrap", 0)
    assert code == 0
    assert out.startswith("w: 2 rows are not finite.\nIn bad entries are inf or nan.")
    assert out.index("bad   ") < out.index("  2 rows not finite") < out.index("good   ")


def test_a_state_dict_and_split_qkv(command, tmp_path):
    torch.save(
        {"h.0.attn.c_attn.weight": torch.randn(30, 10), "b": torch.ones(2)}, tmp_path / "w.pt"
    )
    _, out, _ = command("inspect", "w.pt", "--json", "--split-qkv", *FEW)
    sites = [from_line(line).site for line in out.splitlines()]
    assert list(dict.fromkeys(sites)) == [f"h.0.attn.c_attn[{part}]" for part in "qkv"]


# --- several checkpoints


def test_a_run_folder_gives_the_trajectory(command, trained):
    code, out, _ = command("inspect", "run", *FEW)
    assert code == 0
    assert out.splitlines()[0].endswith("step-000002: Steps 1 to 2.")
    assert "Median stable rank:" in out and "median stable rank" in out
    rows = [line.split()[0] for line in out.splitlines() if line[:1].isdigit()]
    assert rows == ["1", "2"]


def test_compare_shows_both_and_says_what_was_not_compared(command, tmp_path):
    save_file(
        {"a.weight": torch.diag(torch.tensor([2.0, 1.0])), "b.weight": torch.eye(3)},
        tmp_path / "old",
    )
    save_file(
        {"a.weight": torch.diag(torch.tensor([1.0, 1.0])), "c.weight": torch.eye(4)},
        tmp_path / "new",
    )
    code, out, _ = command("inspect", "old", "--compare", "new", "--metrics", "stable_rank")
    assert code == 0
    assert out.startswith("Before and after.\n")
    assert "Before: old. After: new." in out
    assert "1.25 → 2.00 ↑" in out  # (4 + 1) / 4, then 2 / 1
    assert "Not compared: 2 matrices." in out
    assert "  b: only in the checkpoint before\n  c: only in the checkpoint after" in out


def test_a_named_size_is_inspected_as_it_is_born(command):
    _, out, _ = command("inspect", "gpt2-0.1m", "--json", *FEW)
    assert {"wte", "h.0.attn.c_attn"} <= {from_line(line).site for line in out.splitlines()}
    assert command("inspect", "gpt2-0.1m", "--compare", "gpt2-0.4m", *FEW)[0] == 2


# --- with data


def test_data_repeat_the_losses_of_the_run(command, once_trained, trained):
    code, out, err = command(
        "inspect", "run", "--data", once_trained / "text.txt", "--json", *FEW[:2], "--metrics",
        "stable_rank,train_loss,val_loss,train_val_gap,saturation,noise_stability,dead_units,activation_rank",
    )  # fmt: skip
    assert code == 0, err
    records = [from_line(line) for line in out.splitlines()]
    whole = {r.metric: r for r in records if r.site is None}
    written = [r for r in read_jsonl("run/records.jsonl") if r.step == 2 and r.site is None]
    for metric in ("train_loss", "val_loss"):
        (own,) = (r for r in written if r.metric == metric and r.endpoint is None)
        assert whole[metric].value == pytest.approx(own.value, rel=1e-5)
        assert whole[metric].step == 2
    assert whole["train_val_gap"].value == pytest.approx(
        whole["val_loss"].value - whole["train_loss"].value
    )
    assert {"noise_stability@0.01", "noise_stability@0.1"} <= set(whole)
    sites = {(r.metric, r.site) for r in records}
    assert {
        ("saturation@2", "h.0.ln_1"),
        ("activation_rank", "h.0.ln_1"),
        ("dead_units", "h.0.mlp.c_proj"),
    } <= sites


def test_data_are_shown_in_words(command, once_trained, trained):
    _, out, _ = command("inspect", "run", "--data", once_trained / "text.txt", *FEW)
    for words in (
        "Validation loss, nats",
        "Gap: validation minus training, nats",
        "h.0.ln_1",
        "linear layers",
    ):
        assert words in out


# --- refusals, each with exit status 2 and something to try


class Hostile:
    def __reduce__(self):
        return os.system, ("touch hacked",)


def damaged(path):
    data = (path / "w.safetensors").read_bytes()
    (path / "cut.safetensors").write_bytes(data[: len(data) // 2])
    (path / "empty.safetensors").write_bytes(b"")
    (path / "plain.pkl").write_bytes(pickle.dumps(Hostile()))
    torch.save({"w": Hostile()}, path / "hostile.pt")
    (path / "folder").mkdir()
    (path / "other").mkdir()
    (path / "other" / "notes.txt").write_text("mine")


@pytest.mark.parametrize(
    ("words", "wrong", "advice"),
    [
        (["nowhere"], "There is no file or folder nowhere.", "In . there is:"),
        (["cut.safetensors"], "cut.safetensors", "download or save"),
        (["empty.safetensors"], "empty.safetensors", ""),
        (["hostile.pt"], "hostile.pt", ""),
        (["plain.pkl"], "plain.pkl", ""),
        (["folder"], "folder holds no weights", "Give a file"),
        (["w.safetensors", "--metrics", "stable_rnk"], "There is no metric 'stable_rnk'.", "Did you mean 'stable_rank'?"),
        (["w.safetensors", "--metrics", "dead_units"], "dead_units is measured on data, and none are given.", "Add --data"),
        (["w.safetensors", "--data", "embedded"], "holds weights, and nothing that says of which model", "inspect_activations"),
        (["w.safetensors", "--bootstrap", "39"], "--bootstrap 39 is too few for a 95 % interval", "at least 40, or 0"),
        (["w.safetensors", "--metrics", " ,"], "--metrics ' ,' names no metric.", "Leave it out for all"),
        (["bad\udcff.pt"], "'bad\\udcff.pt' is no text in UTF-8", "Rename it"),
        (["w.safetensors", "--out", "bad\udcff"], "'bad\\udcff' is no text in UTF-8", "Rename it"),
        (["gpt2-0.9m"], "There is no size, file or folder 'gpt2-0.9m'.", "gpt2-0.8m"),
        (["w.safetensors", "--bootstrap", "-1"], "--bootstrap must not be negative, got -1.", "Try --bootstrap 200"),
        (["w.safetensors", "--compare", "nowhere"], "There is no file or folder nowhere.", ""),
        (["w.safetensors", "--out", "other"], "other holds files that are not a run's: notes.txt.", "--out"),
    ],
)  # fmt: skip
def test_bad_input_is_told_with_advice(command, checkpoint, tmp_path, words, wrong, advice):
    damaged(tmp_path)
    code, out, err = command("inspect", *words)
    first, _, second = err.partition("\n")
    assert (code, out) == (2, "")
    assert wrong in first and advice in second and second.strip()
    assert not (tmp_path / "hacked").exists()


def test_data_of_another_kind_are_refused(command, once_trained, trained):
    manifest = json.loads((trained / "manifest.json").read_text())
    manifest["data"]["unit"] = "token"
    (trained / "manifest.json").write_text(json.dumps(manifest))
    code, _, err = command("inspect", "run", "--data", once_trained / "text.txt", *FEW)
    assert code == 2
    assert "reads tokens of a vocabulary of 256" in err and "--tokenizer" in err


def test_a_finished_folder_of_another_inspection_is_refused(command, checkpoint):
    command("inspect", checkpoint, "--out", "run", *FEW)
    code, _, err = command("inspect", checkpoint, "--out", "run", "--bootstrap", 40)
    assert code == 2
    assert "run belongs to another run: " in err and "bootstrap was 0, now 40" in err
