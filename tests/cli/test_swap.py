"""Tests of ``triplepoint swap``."""

import json

import pytest
import torch

import triplepoint as tp
from triplepoint.blueprints import blueprint_of


def test_every_norm_is_in_the_table_and_the_folder_is_loaded_again(command, tmp_path):
    code, out, err = command("swap", "gpt2-0.1m", "--to", "dyt:paper", "--out", "swapped")
    assert (code, err) == (0, "")
    for path in ("h.0.ln_1", "h.0.ln_2", "h.1.ln_1", "h.1.ln_2", "ln_f"):
        assert path in out
    assert "gpt2-0.1m: 5 norms became dyt:paper, 0 stay." in out
    model = tp.load("swapped")
    torch.manual_seed(0)
    own = blueprint_of("gpt2-0.1m").build()
    tp.swap_norms(own, "dyt:paper")
    tokens = torch.arange(7)[None]
    assert torch.equal(model(tokens), own.eval()(tokens))


def test_a_dry_run_writes_nothing(command, tmp_path):
    code, out, _ = command("swap", "llama-0.1m", "--where", "pre_mlp,final", "--dry-run", "--json")
    found = json.loads(out)
    assert code == 0 and list(tmp_path.iterdir()) == []
    assert {i["role"] for i in found["swapped"]} == {"pre_mlp", "final"}
    assert {i["reason"] for i in found["skipped"]} == {"not chosen by where="}
    assert found["out"] is None


def test_globs_choose_paths(command):
    code, out, _ = command("swap", "gpt2-0.1m", "--where", "h.0.*", "--dry-run", "--json")
    assert code == 0
    assert [i["path"] for i in json.loads(out)["swapped"]] == ["h.0.ln_1", "h.0.ln_2"]


@pytest.mark.parametrize(
    ("words", "problem", "remedy"),
    [
        (["gpt2-0.1m"], "--dry-run writes nothing, --out says where", "Give one of them"),
        (["gpt2-0.1m", "--dry-run", "--out", "x"], "--dry-run writes nothing", "Give one of them"),
        (["gpt2-0.1m", "--dry-run", "--to", "dty"], "There is no op 'dty'", "Did you mean 'dyt'"),
        (["gpt2-0.1m", "--dry-run", "--where", "final,h.*"], "mixes roles and paths", "Give roles"),
        (["gpt2-0.1m", "--dry-run", "--where", "nothing.*"], "has no norm to swap", ""),
        (["gpt2-0.2m", "--dry-run"], "There is no model 'gpt2-0.2m'", "Did you mean"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_says_why_and_leaves_nothing(command, tmp_path, words, problem, remedy):
    code, out, err = command("swap", *words)
    assert (code, out) == (2, "")
    first, second = err.removeprefix("Error: ").split("\n", 1)
    assert problem in first and remedy in second
    assert list(tmp_path.iterdir()) == []


UNSWAPPABLE = """
from torch import nn

def mixed():
    return nn.Sequential(nn.LayerNorm(4), nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4), nn.GroupNorm(2, 4))
"""


def test_strict_ends_with_status_two_where_a_norm_would_stay(command, tmp_path, monkeypatch):
    (tmp_path / "mixed_norms.py").write_text(UNSWAPPABLE)
    monkeypatch.syspath_prepend(tmp_path)
    words = ("swap", "mixed_norms:mixed", "--dry-run")
    code, out, _ = command(*words, "--json")
    assert code == 0
    assert [item["path"] for item in json.loads(out)["skipped"]] == ["2", "3"]
    code, out, err = command(*words, "--strict")
    assert (code, out) == (2, "")
    assert "2 of 3 norms can't be swapped, and strict=True asks for all: 2 (" in err
