"""Tests of the command line: what a person types, sees, and gets wrong."""

import json
import subprocess
import sys

import pytest

TEXT = "".join(
    f"line {i}: the quick brown fox jumps over the lazy dog {i * i}\n" for i in range(2000)
)
SMALL = ["--model", "gpt2-0.1m", "--context", "16", "--batch", "2"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def refused(result, *parts):
    """Assert exit status 2, no traceback, and a message with all ``parts`` and a second line."""
    code, out, err = result
    assert code == 2, (code, out, err)
    assert "Traceback" not in err
    said = " ".join(err.split())
    for part in parts:
        assert part in said, said
    return said


def test_version_prints_the_version_alone(command):
    assert command("--version")[1].strip() == "triplepoint 0.1.0"


def test_help_names_every_command(command):
    code, out, _ = command("--help")
    assert code == 0
    for name in ("screen", "train", "report"):
        assert name in out


def test_screen_prints_one_json_document_and_nothing_else(command, text, tmp_path):
    words = ["screen", *SMALL, "--data", text, "--candidates", "dyt:paper,rmsnorm", "--steps", 20, "--seeds", 1,
             "--out", tmp_path / "run", "--workers", 1]  # fmt: skip
    code, out, err = command(*words, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["plan"]["steps"] == 400
    assert [c["arm"] for c in found["candidates"]] == ["dyt:paper", "rmsnorm"]
    assert "Plan: 400 steps (assumed: 20 x the calibration) on the whole training split" in err
    files = {p.name for p in (tmp_path / "run").iterdir()}
    assert {
        "manifest.json",
        "records.jsonl",
        "records.parquet",
        "arrays.npz",
        "verdict.json",
        "report.html",
    } <= files
    # the same command again says so and trains nothing
    code, out, _ = command(*words)
    assert code == 0
    assert "was finished before; nothing was trained" in out
    assert "UNDECIDED" in out


def test_screen_in_processes_takes_tokens_for_the_plan(command, text, tmp_path):
    code, out, _ = command(
        "screen", *SMALL, "--data", text, "--candidates", "derf", "--steps", 20, "--seeds", 1, "--planned-tokens", 641,
        "--train-tokens", 5000, "--workers", 2, "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert code == 0
    found = json.loads(out)
    assert found["plan"]["steps"] == 21  # 641 tokens in steps of 2 x 16, rounded up
    assert found["plan"]["unique_tokens"] == 5000


def test_train_prints_records_as_json_lines(command, text, tmp_path):
    code, out, _ = command(
        "train", *SMALL, "--op", "derf", "--data", text, "--steps", 12, "--eval-every", 4, "--out", tmp_path / "run", "--json"
    )  # fmt: skip
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [r["step"] for r in rows if r["metric"] == "val_loss" and "endpoint" not in r] == [
        4,
        8,
        12,
    ]
    assert {r["arm"] for r in rows} == {"derf"}


def test_train_then_report_and_a_run_folder_as_the_model(command, text, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    code, out, _ = command("train", *SMALL, "--data", text, "--steps", 5, "--out", first)
    assert code == 0
    assert "validation loss" in out
    (first / "report.html").unlink()
    assert command("report", first)[0] == 0
    assert (first / "report.html").exists()
    code, _, _ = command(
        "train",
        "--model",
        first,
        "--context",
        16,
        "--batch",
        2,
        "--data",
        text,
        "--steps",
        5,
        "--out",
        second,
    )
    assert code == 0
    assert json.loads((second / "manifest.json").read_text())["model"]["name"] == "gpt2-0.1m"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--data", "nowhere.txt"], ["nowhere.txt"]),
        (["--data", "empty.txt"], ["empty.txt", "empty"]),
        (["--data", "short.txt"], ["context"]),
        (["--data", "binary.txt"], ["binary.txt"]),
        (["--data", "odd.bin"], ["odd.bin"]),
        (["--data", "ids.bin", "--vocab", "100"], ["--vocab"]),
        (["--candidates", "dty"], ["no op 'dty'", "Did you mean 'dyt'?"]),
        (["--candidates", "dyt:papper"], ["'papper'", "Did you mean 'paper'?"]),
        (["--model", "gpt2-0.4n"], ["no model 'gpt2-0.4n'", "Did you mean 'gpt2-0.4m'?"]),
        (["--candidates", "layernorm"], ["is the baseline"]),
        (["--candidates", ","], ["no candidate"]),
        (["--candidates", "dyt,dyt"], ["Named twice: dyt"]),
        (["--planned-steps", "10"], ["shorter than the calibration", "--steps 10"]),
        (["--planned-steps", "99", "--planned-tokens", "99"], ["Give one of them"]),
        (["--planned-steps", "0"], ["--planned-steps must be at least 1, got 0"]),
        (["--steps", "0"], ["--steps must be at least 1"]),
        (["--steps", "-5"], ["--steps must be at least 1"]),
        (["--seeds", "0"], ["seeds must be at least 1"]),
        (["--batch", "0"], ["--batch must be at least 1"]),
        (["--context", "0"], ["context must be at least 1"]),
        (["--lr", "0"], ["learning rate must be positive"]),
        (["--lr", "nan"], ["learning rate must be positive"]),
        (["--warmup", "-1"], ["warmup must be at least 0"]),
        (["--dropout", "1.5"], ["dropout must lie in [0, 1)"]),
        (["--train-tokens", "0"], ["train"]),
        (["--train-tokens", "99999999"], ["99999999"]),
        (["--schedule", "cosin"], ["no schedule 'cosin'"]),
        (["--criterion", "best"], ["no criterion 'best'"]),
        (["--precision", "fp8"], ["no precision 'fp8'"]),
        (["--tie-margin", "-1"], ["tie margin"]),
        (["--workers", "0"], ["--workers"]),
        (["--out", "text.txt"], ["text.txt"]),
        (["--out", "/proc/nowhere"], ["/proc/nowhere", "--out"]),
        (["--out", "."], ["not a run's"]),
        (["--nonsense"], ["--nonsense"]),
        (["--candidates", "dyt,dyt:recommended"], ["dyt and dyt:recommended are the same candidate"]),
        (["--candidates", "dyt:"], ["no dyt preset ''"]),
        (["--candidates", "DYT"], ["no op 'DYT'", "Did you mean 'dyt'?"]),
        (["--lr", "1e-300"], ["learning rate must be positive and finite"]),
        (["--lr", "inf"], ["learning rate must be positive and finite"]),
        (["--weight-decay", "inf"], ["weight_decay must be at least 0 and finite"]),
        (["--data", ""], ["path of the data is empty"]),
        (["--model", "x" * 5000], ["There is no model"]),
        (["--model", "broken"], ["made from a model object"]),
        (["--batch", "1000000000"], ["batch must be at most 1000000"]),
    ],
    ids=lambda value: " ".join(value) if value and str(value[0]).startswith("--") else "",
)  # fmt: skip
def test_bad_input_to_screen_ends_with_status_2_and_advice(command, text, tmp_path, words, parts):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "short.txt").write_text("hello")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "odd.bin").write_bytes(b"\x01\x02\x03" * 1001)
    (tmp_path / "ids.bin").write_bytes(b"\xff\x7f" * 5000)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text('{"model": "x"}')
    given = ["screen", "--steps", "20", "--seeds", "1", "--candidates", "dyt", "--data", str(text)]
    given += ["--out", str(tmp_path / "run"), *SMALL]
    refused(command(*given, *words), *parts)
    assert not list((tmp_path / "run").glob("arms/*")) if (tmp_path / "run").exists() else True


def test_an_output_folder_of_another_run_is_refused_and_kept(command, text, tmp_path):
    given = ["train", *SMALL, "--data", text, "--steps", 5, "--out", tmp_path / "run"]
    assert command(*given)[0] == 0
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    refused(command(*given, "--lr", "0.5"), "belongs to another run", "now 0.5", "--out")
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_a_truncated_checkpoint_is_refused_with_the_folder_to_delete(command, text, tmp_path):
    given = [
        "train",
        *SMALL,
        "--data",
        text,
        "--steps",
        8,
        "--checkpoint-every",
        4,
        "--out",
        tmp_path / "run",
    ]
    assert command(*given)[0] == 0
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"finished"', '"running"'))
    weights = tmp_path / "run" / "checkpoints" / "step-000008" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    refused(command(*given), "step-000008", "delete the folder")


@pytest.mark.parametrize("folder", ["nowhere", ".", "file.txt"])
def test_a_report_of_no_run_folder_is_refused(command, folder, tmp_path):
    (tmp_path / "file.txt").write_text("x")
    refused(command("report", folder), "is not a run folder")


@pytest.mark.parametrize("text", ['{"model": "x"}', "[]", "{", '{"asked": 3}'])
def test_a_report_of_a_damaged_manifest_is_refused(command, tmp_path, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text(text)
    refused(command("report", "run"), "run")


@pytest.mark.parametrize("seed", [-1, 2**63, 2**64])
def test_a_seed_out_of_range_is_refused(command, text, seed):
    refused(
        command("train", *SMALL, "--data", text, "--steps", 2, "--seed", seed),
        "A seed lies in [0, 2^63)",
    )


def test_a_screen_that_lost_its_verdict_is_judged_again_without_training(command, text, tmp_path):
    given = ["screen", *SMALL, "--data", text, "--candidates", "dyt", "--steps", 10, "--seeds", 1, "--workers", 1,
             "--out", tmp_path / "run", "--json"]  # fmt: skip
    first = json.loads(command(*given)[1])
    (tmp_path / "run" / "verdict.json").unlink()
    second = json.loads(command(*given)[1])
    assert second["candidates"][0]["delta_rel"] == first["candidates"][0]["delta_rel"]


def test_a_plan_of_billions_of_steps_is_judged_at_once(command, text, tmp_path):
    code, out, _ = command(
        "screen", *SMALL, "--data", text, "--candidates", "dyt", "--steps", 5, "--seeds", 1, "--workers", 1,
        "--planned-steps", 3 * 10**9, "--out", tmp_path / "run", "--json",
    )  # fmt: skip
    assert code == 0
    assert 0 < json.loads(out)["plan"]["s1_share"] < 1e-8


def test_a_training_that_blew_up_is_said_to_have_diverged(command, text, tmp_path):
    code, out, _ = command(
        "train", *SMALL, "--data", text, "--steps", 20, "--lr", 100, "--warmup", 0, "--eval-every", 4, "--out", tmp_path / "run"
    )  # fmt: skip
    assert code == 0
    assert "layernorm diverged at step" in out


def test_ctrl_c_says_how_to_resume_and_the_same_command_does(tmp_path, text):
    import signal
    import time

    given = [sys.executable, "-m", "triplepoint.cli.main", "screen", *SMALL, "--data", str(text), "--steps", "4000",
             "--seeds", "1", "--candidates", "dyt", "--workers", "2", "--out", str(tmp_path / "run")]  # fmt: skip
    process = subprocess.Popen(
        given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # what runs in the background of a script ignores it, and hands that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    until = time.monotonic() + 90
    while time.monotonic() < until and not list(
        (tmp_path / "run").glob("arms/*/*/*/records.jsonl")
    ):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "resume with:\n  triplepoint screen" in err
    assert "Traceback" not in err
    assert list((tmp_path / "run").glob("arms/*/*/*/records.jsonl"))


CHATTY = """
from torch import nn
print("imported")

class Own(nn.Module):
    def __init__(self, vocab=256):
        super().__init__()
        print("built")
        self.embed, self.norm, self.head = nn.Embedding(vocab, 8), nn.LayerNorm(8), nn.Linear(8, vocab)

    def forward(self, tokens):
        print("called")
        return self.head(self.norm(self.embed(tokens)))
"""


@pytest.mark.parametrize(
    "words",
    [
        ["swap", "chatty:Own", "--dry-run"],
        ["check", "chatty:Own"],
        ["train", "--model", "chatty:Own", "--steps", "1", "--context", "8", "--batch", "1"],
    ],
    ids=lambda words: words[0],
)
def test_what_a_model_prints_is_not_in_the_document(command, tmp_path, monkeypatch, words):
    (tmp_path / "chatty.py").write_text(CHATTY)
    monkeypatch.delitem(sys.modules, "chatty", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    code, out, err = command(*words, "--json")
    assert code == 0, err
    assert all(json.loads(line) for line in out.splitlines())
    assert "imported\nbuilt" in err


def test_what_a_model_prints_in_workers_is_not_in_the_document(tmp_path):
    (tmp_path / "chatty.py").write_text(CHATTY)
    words = [
        "screen", "--model", "chatty:Own", "--candidates", "dyt", "--steps", "2", "--seeds", "1", "--context", "8",
        "--batch", "1", "--planned-steps", "20", "--workers", "2", "--json",
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "triplepoint.cli.main", *words], cwd=tmp_path, capture_output=True, text=True
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"]
    assert "called" in done.stderr


@pytest.mark.parametrize("command_name", ["train", "screen"])
def test_an_encoder_is_not_trained_to_predict_what_it_sees(
    command, tmp_path, monkeypatch, command_name
):
    (tmp_path / "sees.py").write_text(
        CHATTY.replace(
            "self.embed(tokens))", "self.embed(tokens) + self.embed(tokens).mean(1, True))"
        )
    )
    monkeypatch.delitem(sys.modules, "sees", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    words = ["--model", "sees:Own", "--steps", "2", "--context", "8", "--batch", "1"]
    more = ["--planned-steps", "20", "--workers", "1"] if command_name == "screen" else []
    refused(
        command(command_name, *words, *more),
        "sees:Own sees the tokens that it is to predict", "screen and train need a decoder",
    )  # fmt: skip
