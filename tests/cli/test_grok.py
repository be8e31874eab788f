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
