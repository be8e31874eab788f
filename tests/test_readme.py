"""The README's Python is run as it stands there."""

import pathlib
import re
import warnings

import pytest

from triplepoint.logbook import read_logbook

README = pathlib.Path(__file__).parents[1] / "README.md"


BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def run_block_with(word):
    (code,) = [block for block in BLOCKS if word in block]
    namespace = {}
    exec(compile(code, str(README), "exec"), namespace)
    return namespace


def test_every_python_block_of_the_readme_is_run_below():
    assert len(BLOCKS) == 6


def test_the_screen_of_the_readme_prints_a_verdict(capsys):
    verdict = run_block_with('candidates=["dyt:recommended", "derf"]')["verdict"]
    assert verdict.verdict in ("keep", "replace", "unsafe", "undecided")
    assert verdict.headline in capsys.readouterr().out


def test_a_hugging_face_model_and_one_of_ones_own_are_screened(capsys):
    pytest.importorskip("transformers")
    verdict = run_block_with("LlamaForCausalLM(llama)")["verdict"]
    out = capsys.readouterr().out
    assert verdict.headline in out
    assert "RMSNorm" in out and "LayerNorm" in out


def test_the_watched_loop_of_the_readme_says_the_phase_and_the_outlook(capsys):
    monitor = run_block_with("tp.GrokMonitor(")["monitor"]
    assert monitor.phase.phase == "memorised"
    out = capsys.readouterr().out
    assert monitor.phase.reason in out
    assert "expect it to generalise" in out


@pytest.mark.parametrize(
    ("word", "needs", "folder"),
    [
        ("with Session(", "torch", "runs/plain"),
        ("TrainingArguments(", "transformers", "runs/hf"),
        ("LightningModule", "lightning.pytorch", "runs/lightning"),
    ],
)
def test_the_watched_loops_of_the_readme_write_what_they_saw(
    tmp_path, monkeypatch, word, needs, folder
):
    with warnings.catch_warnings():  # the other libraries' own
        warnings.simplefilter("ignore")
        pytest.importorskip(needs)
        monkeypatch.chdir(tmp_path)
        run_block_with(word)
    records, _ = read_logbook(tmp_path / folder / "triplepoint.jsonl")
    sampled = [r for r in records if r.metric == "saturation@2"]
    # every tenth step and the first, at each of five sites
    assert [r.step for r in sampled] == [1] * 5 + [10] * 5 + [20] * 5
    assert any(r.metric == "train_loss" for r in records)


def test_every_file_and_command_that_the_readme_names_exists():
    text = README.read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (README.parent / target).exists(), target
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\S+)", text, re.MULTILINE):
        assert f"\n{target}:" in makefile
