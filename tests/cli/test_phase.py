"""Tests of ``triplepoint phase``: what a person types, sees, and gets wrong."""

import json
import subprocess
import sys

import pytest
from tests.report.test_page import check_balance, figures

from triplepoint.records import Record
from triplepoint.runs import RunFolder

VAL = [3.0, 2.0, 1.8, 1.7, 1.74, 1.8, 1.9, 2.04]
"""Best 1.7 at step 400; over-fitting from step 600 on, told at step 800; 0.34 = 20.0 % above the best at the end."""


@pytest.fixture
def overfitted(tmp_path):
    """A CSV log of a run that over-fits."""
    rows = [f"{100 * i},{3.2 - 0.3 * i:.1f},{x}" for i, x in enumerate(VAL, 1)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["step,train_loss,val_loss", *rows]) + "\n")
    return path


@pytest.fixture
def grokked(tmp_path):
    """JSON Lines of a run that memorises at step 20 and generalises at 5000; watched until step 8000."""
    train = [(10 * i, x) for i, x in enumerate([0.3, 1, 1, 1, 1], 1)]
    val = [(1000 * i, x) for i, x in enumerate([0.1, 0.1, 0.1, 0.3, 0.6, 0.8, 0.85, 0.93], 1)]
    rows = [{"step": s, "train_accuracy": x} for s, x in train]
    rows += [{"step": s, "val_accuracy": x} for s, x in val]
    path = tmp_path / "grok.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_person_sees_columns_phases_and_what_follows(command, overfitted):
    code, out, err = command("phase", overfitted)
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == (
        f"{overfitted}: CSV, 8 rows; step = 'step', train_loss = 'train_loss', val_loss = 'val_loss'."
    )
    assert lines[1] == "from step to step phase why"
    assert lines[2].startswith("100 300 fitting validation loss 1.800, not 3")
    assert lines[4].startswith(
        "400 700 generalising validation loss more than 0.05 below its first"
    )
    assert lines[6].startswith(
        "800 800 overfitting validation loss 0.05 or more above its best, 1.700"
    )
    assert "Best step: 400, validation loss 1.7." in lines
    assert "Over-fitting onset: step 600; at the end 0.34 above the best (+20.0%)." in lines
    assert "Not told: memorised, T_mem: no training accuracy." in lines
    assert lines[-1].startswith("Next: Go back to the checkpoint of the best step")


def test_json_is_one_document_and_nothing_else(command, overfitted):
    code, out, err = command("phase", overfitted, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["columns"] == {"step": "step", "train_loss": "train_loss", "val_loss": "val_loss"}
    assert found["phase"] == "overfitting"
    spans = [(s["from_step"], s["to_step"], s["phase"]) for s in found["phases"]]
    assert spans == [(100, 300, "fitting"), (400, 700, "generalising"), (800, 800, "overfitting")]
    assert found["best"] == {"step": 400, "val_loss": 1.7}
    assert found["overfitting"]["onset"] == {"step": 600, "censored_at": None}
    assert found["overfitting"]["rise"] == pytest.approx(0.34)
    assert (found["times"], found["plateau"], found["notes"]) == ({}, None, [])
    assert found["steps"] == [100, 800]


def test_times_are_given_and_censored(command, grokked):
    code, out, _ = command("phase", grokked, "--vocab", "10")
    assert code == 0
    # half way between a tenth and 1 is 0.55: 0.6 at step 5000 is the first of three
    assert "validation accuracy 0.55 or more since step 5000" in " ".join(out.split())
    for line in ("T_mem: step 20.", "T_grok_0.5: step 5000.", "T_grok_0.9: > 7000: not reached.",
                 "T_grok_0.99: > 8000: not reached."):  # fmt: skip
        assert line in out.splitlines()
    found = json.loads(command("phase", grokked, "--vocab", "10", "--json")[1])
    spans = [(s["from_step"], s["to_step"], s["phase"]) for s in found["phases"]]
    assert spans == [(10, 30, "fitting"), (40, 6000, "memorised"), (7000, 8000, "generalising")]
    assert found["times"]["T_grok_0.99"] == {"step": None, "censored_at": 8000}


def test_vocab_is_a_uniform_guess_and_plateau_goes_before_it(command, overfitted):
    found = json.loads(command("phase", overfitted, "--vocab", "65", "--json")[1])
    assert found["plateau"] == pytest.approx(4.17439, abs=1e-5)  # ln 65
    assert found["plateau_from"] == "ln 65, a uniform guess"
    assert "divergence of a finite loss, leaving the plateau" not in found["not_told"]
    found = json.loads(command("phase", overfitted, "--vocab", 65, "--plateau", 1.9, "--json")[1])
    assert (found["plateau"], found["plateau_from"]) == (1.9, "--plateau")


def test_a_uniform_guess_is_no_plateau_of_a_squared_error(command, tmp_path):
    with RunFolder(tmp_path / "run", asked={}, kind="grok") as folder:
        folder.append(Record(metric="val_loss", value=x, step=i) for i, x in enumerate(VAL))
        folder.write_manifest({"metrics": {"val_loss": {"unit": "squared error per output"}}})
    found = json.loads(command("phase", "run", "--vocab", 11, "--json")[1])
    assert found["plateau"] is None
    with RunFolder(tmp_path / "run", asked={}, kind="grok") as folder:
        folder.write_manifest({"metrics": {"val_loss": {"unit": "nats/token"}}})
    found = json.loads(command("phase", "run", "--vocab", 11, "--json")[1])
    assert found["plateau"] == pytest.approx(2.3979, abs=1e-4)  # ln 11


def test_columns_of_other_names_are_named(command, tmp_path):
    (tmp_path / "log.csv").write_text("t,a,b\n1,3.0,3.0\n2,2.0,2.5\n")
    code, out, _ = command("phase", "log.csv", "--step-column", "t", "--train", "a", "--val", "b")
    assert code == 0
    assert "step = 't', train_loss = 'a', val_loss = 'b'." in out


def test_not_a_number_is_json_all_the_same(command, tmp_path):
    (tmp_path / "log.csv").write_text("step,loss\n1,3.0\n2,nan\n3,inf\n")
    code, out, _ = command("phase", "log.csv", "--json")
    assert code == 0
    assert json.loads(out)["phase"] == "diverged"


def test_training_loss_alone_is_told_to_be_too_little(command, tmp_path):
    (tmp_path / "log.csv").write_text("step,loss\n1,3.0\n2,2.5\n")
    _, out, _ = command("phase", "log.csv")
    assert out.splitlines()[-1] == "Next: Log a validation loss: without one, only a divergence can be told."  # fmt: skip


def test_a_loss_that_does_not_move_at_all_is_said_to(command, tmp_path):
    rows = [f"{i},{10.82 + 0.01 * (i % 2)}" for i in range(10)]
    (tmp_path / "log.csv").write_text("\n".join(["step,val_loss", *rows]) + "\n")
    _, out, _ = command("phase", "log.csv", "--vocab", 50257)
    assert "fitting" in out
    assert out.splitlines()[-1].startswith(
        "Next: The loss has not moved in 10 evaluations: look at"
    )


def test_many_phases_are_cut_in_the_table_only(command, tmp_path):
    cycle = [2.0, 2.0, 2.0, 2.5, 2.5, 2.5] * 15
    rows = [f"{i},{x}" for i, x in enumerate([3.0, *cycle])]
    (tmp_path / "log.csv").write_text("\n".join(["step,val_loss", *rows]) + "\n")
    found = json.loads(command("phase", "log.csv", "--json")[1])
    assert len(found["phases"]) == 31
    _, out, _ = command("phase", "log.csv")
    assert "11 earlier phases are left out; --json has them." in out


# --- the picture


def test_a_folder_gets_a_page_that_can_be_written_anew(command, overfitted, tmp_path):
    code, out, _ = command("phase", overfitted, "--vocab", 65, "--out", tmp_path / "run")
    assert code == 0
    path = tmp_path / "run" / "report.html"
    assert out.splitlines()[-1] == f"Picture: {path}"
    page = path.read_text()
    check_balance(page)
    figure = figures(page)["curves"]
    assert [(line["name"], line["x"][0], line["y"][0]) for line in figure["data"]] == [
        ("train", 100, 2.9), ("validation", 100, 3.0)]  # fmt: skip
    bands = [(s["x0"], s["x1"]) for s in figure["layout"]["shapes"] if s["type"] == "rect"]
    # told against ln 65 = 4.17, below which the loss was from the start
    assert bands == [(100, 300), (300, 800), (800, 800)]
    assert [a["text"] for a in figure["layout"]["annotations"]] == [
        "best 400",
        "over-fitting 600",
        "plateau",
    ]
    path.unlink()
    assert command("report", tmp_path / "run")[0] == 0
    assert path.read_text() == page
    # the log of a run that goes on is read again into the same folder
    assert command("phase", overfitted, "--out", tmp_path / "run")[0] == 0


def test_a_file_of_html_is_written_alone(command, grokked, tmp_path):
    assert command("phase", grokked, "--out", "page.html", "--json")[0] == 0
    page = (tmp_path / "page.html").read_text()
    check_balance(page)
    assert {line["name"] for line in figures(page)["curves"]["data"]} == {"train", "validation"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["grok.jsonl", "page.html"]


def test_a_name_with_markup_is_shown_as_it_is(command, overfitted, tmp_path):
    odd = overfitted.rename(tmp_path / "<b>[red]log.csv")
    code, out, _ = command("phase", odd.name, "--out", "page.html")
    assert code == 0 and "<b>[red]log.csv: CSV" in out
    assert "<h1>&lt;b&gt;[red]log.csv</h1>" in (tmp_path / "page.html").read_text()


def test_the_folder_of_another_log_is_refused(command, overfitted, grokked, tmp_path):
    assert command("phase", overfitted, "--out", tmp_path / "run")[0] == 0
    code, _, err = command("phase", grokked, "--out", tmp_path / "run")
    assert code == 2 and "belongs to another run: log was" in err


# --- what goes wrong


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["nowhere.csv"], ["nowhere.csv cannot be read: No such file or directory.\nGive trainer_state.json"]),
        (["two"], ["two holds 2 logs: a.csv, b.csv.\nName one of them."]),
        (["empty.csv"], ["empty.csv is empty.\nGive a log with at least one row"]),
        (["log.csv", "--val", "vall"], ["log.csv has no column 'vall'.\nIts columns are: step, train_loss, val_loss."]),
        (["log.csv", "--plateau", "nan"], ["--plateau is nan.\nGive a loss in nats"]),
        (["log.csv", "--plateau", "0"], ["--plateau is 0.\nGive a loss in nats"]),
        (["log.csv", "--vocab", "1"], ["--vocab is 1.\nGive the number of tokens or classes, at least 2."]),
        (["log.csv", "--margin", "-1"], ["--margin is -1.\nGive a difference of losses"]),
        (["apart.jsonl"], ["has no loss or accuracy with a step.\nName the columns: --step-column"]),
        (["log.csv", "--run", "a"], ["has no run 'a'.\nIt holds one run: leave out --run."]),
        (["log.csv", "--out", "log.csv"], ["log.csv cannot be a folder", "Choose another folder with --out."]),
        ([], ["LOG"]),
    ],
)  # fmt: skip
def test_bad_input_ends_with_status_2_and_advice(command, overfitted, tmp_path, words, parts):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "apart.jsonl").write_text('{"step": 1}\n{"loss": 2.0}\n')
    (tmp_path / "two").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "two" / name).write_text("step,loss\n1,2\n")
    code, out, err = command("phase", *words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    for part in parts:
        assert part in err


def test_neither_torch_nor_plotly_is_imported_for_an_answer(overfitted):
    code = (
        "import sys; from triplepoint.cli.main import run\n"
        f"sys.argv = ['triplepoint', 'phase', {str(overfitted)!r}, '--json']\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'plotly', 'pandas', 'numpy', 'pyarrow', 'tensorboard'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["[]"]


def test_a_page_in_a_folder_that_is_not_there_is_refused(command, tmp_path):
    (tmp_path / "log.csv").write_text("step,val_loss\n1,2\n2,1\n")
    code, out, err = command("phase", "log.csv", "--out", "nowhere/page.html", "--json")
    assert (code, out) == (2, "")
    assert "there is no folder nowhere.\nMake it, or name another file with --out." in err
