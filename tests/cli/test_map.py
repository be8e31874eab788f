"""Tests of ``triplepoint map``."""

import json
import sys

import pytest
from tests.maps.test_running import failing
from typer.testing import CliRunner

from triplepoint.cli import main
from triplepoint.runs import read_rows
from triplepoint.sweeps.executors import lost_worker

PLAN = """
windows = 4
eval_every = 2
looks = false
[defaults]
size = "gpt2-0.1m"
context = 16
unique_tokens = 2000
batch = 2
warmup = 1
steps = 4
[grid]
op = ["norm", "dyt"]
"""


def called(monkeypatch, capsys, *words):
    """Run the command as a shell would; returns status, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["triplepoint", "map", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main.run()
    said = capsys.readouterr()
    return ended.value.code or 0, said.out, said.err


def test_a_plan_runs_and_its_status_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "plan.toml").write_text(PLAN)
    out = tmp_path / "map"
    code, stdout, _ = called(monkeypatch, capsys, "run", tmp_path / "plan.toml", "--out", out, "--workers", 1, "--json")  # fmt: skip
    document = json.loads(stdout)
    assert (code, document["cells"], document["finished"], document["failed"]) == (0, 2, 2, {})
    assert len(read_rows(document["table"])) == 4
    code, stdout, _ = called(monkeypatch, capsys, "status", out, "--json")
    assert (code, json.loads(stdout)["finished"]) == (0, 2)
    code, stdout, _ = called(monkeypatch, capsys, "status", out)
    assert "map: 2 cells: 2 finished; 100% of the work is done." in stdout
    code, stdout, _ = called(monkeypatch, capsys, "run", tmp_path / "plan.toml", "--out", out)
    assert "2 of 2 cells. Table:" in " ".join(stdout.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run",), "A map needs a plan: a TOML file or --grid, and not both.\nTry --grid"),
        (("run", "no.toml", "--grid", "op=norm"), "and not both"),
        (("run", "no.toml"), "The plan no.toml cannot be read"),
        (("run", "--grid", "size=gpt2-0.1m;op=dyt,dyt:recommended"), "1 of 2 cells are duplicates"),
        (("run", "--grid", "size=gpt2-0.1m;heads=5"), "1 of 1 cells cannot run:\n  size=gpt2-0.1m, op=layernorm, heads=5"),
        (("run", "--grid", "size=gpt2-0.1m;op=norm", "--executor", "pbs"), "There is no executor 'pbs'"),
        (("status", "nowhere"), "nowhere is not a run folder"),
    ],
)  # fmt: skip
def test_bad_input_is_a_message_and_status_two(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = called(monkeypatch, capsys, *words)
    assert (code, stdout) == (2, "")
    assert f"Error: {message}" in stderr or message in stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", [None, "--keep-going", "--fail-fast"])
def test_what_a_failed_cell_means_for_the_others_is_asked_for(tmp_path, monkeypatch, capsys, word):
    failing(monkeypatch, lambda index: lost_worker(index, "exit code -9"))
    (tmp_path / "plan.toml").write_text(PLAN.replace('"dyt"]', '"dyt", "derf"]'))
    out = tmp_path / "map"
    words = ["run", tmp_path / "plan.toml", "--out", out, "--workers", 1, "--retries", 0, "--json"]
    code, stdout, stderr = called(monkeypatch, capsys, *words, *([word] if word else []))
    if word == "--fail-fast":
        assert (code, stdout) == (2, "")
        assert "Error: A worker process ended without a word (exit code -9)." in stderr
    else:
        document = json.loads(stdout)
        # the second of three failed, the third has run
        assert (code, document["finished"], len(document["failed"])) == (1, 2, 1)


def test_the_help_says_that_ray_needs_a_shared_folder():
    told = CliRunner().invoke(main.app, ["map", "run", "--help"], terminal_width=300).output
    assert "with Ray one that all nodes share" in " ".join(told.replace("│", " ").split())
