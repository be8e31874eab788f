"""Tests of ``triplepoint check``."""

import json
import shutil

import pytest
import torch

from triplepoint.invariance import LAWS
from triplepoint.models import SIZES
from triplepoint.recipes import Recipe
from triplepoint.sweeps.cells import Cell, DataSpec, run_cell


@pytest.fixture(scope="module")
def once_trained(tmp_path_factory):
    """A run folder as ``triplepoint train`` leaves it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    spec = DataSpec(path=str(folder.parent / "text.txt"), context=16, windows=4)
    (folder.parent / "text.txt").write_text("".join(f"{i}: {i * i} foxes\n" for i in range(2000)))
    recipe = Recipe(steps=2, batch=2, warmup=1, eval_steps=(1, 2))
    run_cell(Cell(path=folder, arm="dyt", op="dyt", size="gpt2-0.1m", data=spec, recipe=recipe))
    return folder


@pytest.fixture
def trained(once_trained, tmp_path):
    """A copy of it, to damage."""
    return shutil.copytree(once_trained, tmp_path / "run")


@pytest.mark.parametrize("size", [s for s in SIZES if s.endswith(("-0.1m", "-0.4m"))])
def test_named_sizes_pass_and_the_table_has_every_law(command, size):
    code, out, err = command("check", size)
    assert (code, err) == (0, "")
    for law in LAWS:
        assert law in out
    assert out.splitlines()[-1] == f"{size}: every law that applies holds."


def test_json_is_one_document_and_nothing_else(command):
    code, out, _ = command("check", "llama-0.1m", "--op", "dyt", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["model"], found["ok"]) == ("llama-0.1m", True)
    assert (found["broken"], found["first_violation"]) == (None, None)
    assert [law["law"] for law in found["laws"]] == list(LAWS)
    assert found["laws"][0]["max_change"] == 0


def test_a_leak_is_named_with_exit_status_1(command):
    code, out, err = command("check", "gpt2-0.1m", "--attention", "paper_v1_leaky")
    assert (code, err) == (1, "")
    assert "BROKEN" in out
    assert "first in h.0.attn.subln" in out
    assert out.splitlines()[-1] == "gpt2-0.1m: a law is broken."


def test_a_leak_in_json(command):
    code, out, _ = command("check", "llama-0.1m", "--attention", "paper_v1_leaky", "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["broken"]) == (1, False, "causality")
    assert found["first_violation"] == "layers.0.self_attn.subln"
    assert found["max_change"] == found["laws"][0]["max_change"] > 0


def test_laws_that_do_not_apply_to_images_are_said_to(command):
    code, out, _ = command("check", "vit-0.1m", "--json")
    laws = {law["law"]: law for law in json.loads(out)["laws"]}
    assert code == 0
    assert laws["causality"]["ok"] is None
    assert "are no sequences" in laws["causality"]["note"]
    assert laws["batch"]["ok"] is True


def test_a_run_folder_is_checked_with_its_op_and_its_best_weights(command, trained, monkeypatch):
    from triplepoint.cli import _checking
    from triplepoint.weights import load_tensors

    seen = []
    build = _checking.model_to_check
    monkeypatch.setattr(
        _checking, "model_to_check", lambda *a, **k: seen.append(build(*a, **k)) or seen[0]
    )
    code, out, err = command("check", trained)
    assert (code, err) == (0, "")
    (model,) = seen
    assert model.config.context == 16
    best = load_tensors(trained / "checkpoints" / "best" / "model.safetensors")
    assert set(best) == set(model.state_dict())
    assert all(torch.equal(best[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["gpt2-0.1n"], ["no model 'gpt2-0.1n'", "Did you mean 'gpt2-0.1m'?"]),
        (["."], ["holds no model: neither config.json, nor triplepoint.json, nor a run's manifest.json"]),
        (["gpt2-0.1m", "--op", "dty"], ["no op 'dty'", "Did you mean 'dyt'?"]),
        (["gpt2-0.1m", "--attention", "dif_v1"], ["no attention 'dif_v1'", "Did you mean 'diff_v1'?"]),
        (["gpt2-0.4m", "--attention", "diff_v1"], ["3 heads are not even in number"]),
        (["vit-0.1m", "--attention", "gated"], ["vit-0.1m has one attention only.", "Leave out --attention."]),
        ([], ["MODEL"]),
    ],
)  # fmt: skip
def test_bad_input_ends_with_status_2_and_advice(command, words, parts):
    code, out, err = command("check", *words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    said = " ".join(err.split())
    for part in parts:
        assert part in said, said


def test_a_runs_op_cannot_be_changed(command, trained):
    code, _, err = command("check", trained, "--op", "derf")
    assert code == 2
    assert "is a run, whose op is fixed.\nLeave out --op" in err


def test_damaged_weights_of_a_run_are_refused(command, trained):
    best = trained / "checkpoints" / "best" / "model.safetensors"
    best.write_bytes(best.read_bytes()[:100])
    code, _, err = command("check", trained)
    assert code == 2
    assert "cannot be read as safetensors" in err


def test_a_file_of_weights_is_told_from_a_size(command, tmp_path):
    (tmp_path / "w.pt").touch()
    code, _, err = command("check", "w.pt")
    assert code == 2
    assert "w.pt is a file, and nothing in it says of which model its weights are." in err
    assert "MODEL is a named size, a Hugging Face folder" in err


def test_a_seed_that_no_generator_takes_is_refused(command):
    code, _, err = command("check", "gpt2-0.1m", "--seed", 2**64)
    assert code == 2 and "--seed" in err
