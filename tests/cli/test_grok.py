"""Tests of ``triplepoint grok``."""

import json
import sys

import pytest

from triplepoint.cli.main import run


@pytest.fixture
def command(monkeypatch, capsys):
    """Run a grok command as typed; returns exit status, stdout and stderr."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["triplepoint", "grok", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            run()
        out = capsys.readouterr()
        return ended.value.code or 0, out.out, out.err

    return call


def test_fast_forward_reaches_the_generalising_network_in_tens_of_gradients(command):
    code, out, _ = command(
        "fast-forward", "--p", 23, "--hidden", 256, "--fraction", 0.7, "--seed", 0, "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert {"test_accuracy", "gradients", "gradients_to_99", "cpu_s"} <= set(found)
    assert found["test_accuracy"] >= 0.99
    assert found["gradients_to_99"] <= 30


@pytest.mark.parametrize(("p", "answer"), [(23, "yes"), (11, "no")])
def test_will_it_grok_tells_enough_data_from_too_little(command, p, answer):
    code, out, _ = command("will-it-grok", "--p", p, "--shuffles", 2, "--json")
    assert code == 0
    assert json.loads(out)["answer"] == answer


def test_will_it_grok_answers_in_a_sentence_with_its_scope(command):
    _, out, _ = command("will-it-grok", "--p", 11, "--shuffles", 2)
    assert "expect memorising" in out
    assert "two-layer nets" in out


def test_a_toy_prints_its_ends_and_writes_a_report(command, tmp_path):
    code, out, _ = command("toy", "--lam", 0.1, "--out", tmp_path / "run")
    assert code == 0
    assert "(0.9524, 0.9524)" in out
    assert (tmp_path / "run" / "report.html").exists()
    document = json.loads(command("toy", "--lam", 0.1, "--out", tmp_path / "run", "--json")[1])
    assert document["ends"][0]["expected"]["drift_steps"] == pytest.approx(131, abs=1)


def test_simulate_train_and_analyse_end_with_a_report_each(command, tmp_path):
    small = ("--p", 7, "--hidden", 24)
    code, out, _ = command(
        "simulate", *small, "--duration", 0.05, "--out", tmp_path / "s", "--json"
    )
    assert code == 0
    assert json.loads(out)["train_accuracy"] == 1
    code, out, _ = command(
        "train", *small, "--steps", 20, "--eval-every", 10, "--diagnose-every", 0, "--out",
        tmp_path / "t",
    )  # fmt: skip
    assert code == 0
    assert "held-out accuracy 99 %" in out
    code, out, _ = command("analyse", tmp_path / "t", "--shuffles", 1, "--out", tmp_path / "a")
    assert code == 0
    assert "Fast-forward from here" in out
    for name in ("s", "t", "a"):
        assert (tmp_path / name / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["toy", "--lam", "x"], "--lam takes numbers"),
        (["toy", "adition"], "'adition'"),
        (["simulate", "--hidden", 8], "lam = 0 needs at least as many hidden units"),
        (["simulate", "--integrator", "rk"], "'rk'"),
        (["train", "--eval-every", 0], "--eval-every 50"),
        (["train", "--loss", "mae"], "'mae'"),
        (["analyse", "nowhere", "--p", 7], "nowhere"),
        (["will-it-grok", "--shuffles", 0], "at least one shuffle"),
        (["fast-forward", "--operation", "s4", "--p", 7], "takes no p"),
    ],
)
def test_bad_input_to_any_command_ends_with_status_2_and_advice(
    command, tmp_path, monkeypatch, words, part
):
    monkeypatch.chdir(tmp_path)
    code, _, err = command(*words)
    assert code == 2
    assert part in err
    assert len(err.splitlines()) >= 2
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--p", 22], "p must be odd"),
        (["--fraction", 2], "fraction must lie between 0 and 1"),
        (["--hidden", 0], "at least one input and one hidden unit"),
        (["--operation", "ad"], "'ad'"),
    ],
)
def test_bad_input_ends_with_status_2_and_advice(command, words, part):
    code, _, err = command("fast-forward", *words)
    assert code == 2
    assert part in err
    assert len(err.splitlines()) >= 2
    assert "Traceback" not in err


def test_a_run_that_diverges_says_so(command, tmp_path):
    words = ("train", "--p", 7, "--hidden", 8, "--steps", 20, "--lr", 1e30, "--out", tmp_path / "r")
    code, out, _ = command(*words)
    assert code == 0
    assert "diverged, the loss is not finite at step 2" in out
    document = json.loads(command(*words, "--json")[1])
    assert document["outcome"] == "diverged"
    assert document["test_accuracy"] is None
