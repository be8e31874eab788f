"""Tests of triplepoint.logs.reading and its readers: logs as tools write them, and logs that are damaged."""

import gzip
import json
import math

import pytest

from triplepoint.errors import LogError
from triplepoint.logs import read_log
from triplepoint.records import Record, to_line
from triplepoint.runs import RunFolder

VAL = [(0, 3.0), (100, 2.0), (200, 1.5)]
CSV = "step,train_loss,val_loss\n0,3.1,3.0\n100,1.9,2.0\n200,1.4,1.5\n"


@pytest.fixture
def written(tmp_path):
    """Write a file; returns its path."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def val_of(path, **how):
    return read_log(path, **how).curves["val_loss"]


def trainer_state(*more, **fields):
    """A state as ``TrainerState.save_to_json`` writes it, with losses at other steps than evaluations."""
    history = [
        {"epoch": 0.5, "grad_norm": 1.02, "learning_rate": 4.5e-05, "loss": 3.1, "step": 50},
        {"epoch": 1.0, "grad_norm": 0.82, "learning_rate": 3.7e-05, "loss": 2.2, "step": 100},
        {"epoch": 1.0, "eval_loss": 2.0, "eval_runtime": 0.01, "eval_samples_per_second": 829.7, "step": 100},
        {"epoch": 2.0, "grad_norm": 0.82, "learning_rate": 2.0e-05, "loss": 1.8, "step": 200},
        {"epoch": 2.0, "eval_loss": 1.5, "eval_runtime": 0.01, "eval_samples_per_second": 829.7, "step": 200},
        *more,
        {"epoch": 2.0, "step": 200, "total_flos": 15261696.0, "train_loss": 2.5, "train_runtime": 0.62,
         "train_samples_per_second": 77.6, "train_steps_per_second": 19.4},
    ]  # fmt: skip
    state = {
        "best_global_step": None, "best_metric": None, "best_model_checkpoint": None, "epoch": 2.0, "eval_steps": 100,
        "global_step": 200, "is_hyper_param_search": False, "is_local_process_zero": True, "is_world_process_zero": True,
        "log_history": history, "logging_steps": 50, "max_steps": 200, "num_input_tokens_seen": 0, "num_train_epochs": 2,
        "save_steps": 100, "stateful_callbacks": {}, "total_flos": 1.5e7, "train_batch_size": 4, "trial_name": None,
    }  # fmt: skip
    return json.dumps({**state, **fields}, indent=2)


# --- Hugging Face


def test_a_trainer_state_has_both_losses_without_the_mean_over_the_run(written):
    log = read_log(written("trainer_state.json", trainer_state()))
    assert log.kind == "Hugging Face trainer state"
    assert log.columns == {
        "step": "step",
        "train_loss": "loss",
        "val_loss": "eval_loss",
        "lr": "learning_rate",
    }
    assert log.curves["train_loss"] == [(50, 3.1), (100, 2.2), (200, 1.8)]
    assert log.curves["val_loss"] == [(100, 2.0), (200, 1.5)]
    assert log.notes == ("the Trainer logs training loss as its mean since the log before",)


def test_the_mean_over_the_run_is_no_point_where_it_is_all_there_is(written):
    rows = [{"eval_loss": 2.0, "step": 100}, {"train_loss": 2.5, "train_runtime": 0.6, "step": 100}]
    log = read_log(written("trainer_state.json", json.dumps({"log_history": rows})))
    assert log.curves == {"val_loss": [(100, 2.0)]}


def test_a_trainer_state_on_one_line_is_read_alike(written):
    flat = json.dumps(json.loads(trainer_state()))
    assert val_of(written("state.json", flat)) == [(100, 2.0), (200, 1.5)]


def test_the_nan_that_json_has_no_word_for_is_kept(written):
    state = trainer_state({"loss": math.nan, "step": 250})
    assert "NaN" in state
    assert math.isnan(read_log(written("s.json", state)).curves["train_loss"][-1][1])


def test_an_output_folder_is_read_from_its_last_checkpoint(written, tmp_path):
    written("checkpoint-90/trainer_state.json", trainer_state(global_step=90))
    last = written("checkpoint-200/trainer_state.json", trainer_state())
    written("checkpoint-best/trainer_state.json", "{}")
    assert read_log(tmp_path).path == last
    # the state that the Trainer saves at the end comes first
    own = written("trainer_state.json", trainer_state())
    assert read_log(tmp_path).path == own


def test_one_of_several_evaluation_sets_is_to_be_named(written):
    rows = [{"step": s, "eval_wiki_loss": x, "eval_code_loss": x / 2} for s, x in VAL]
    path = written("trainer_state.json", json.dumps({"log_history": rows}))
    with pytest.raises(LogError, match="2 columns may be the val loss: 'eval_wiki_loss', 'eval_code_loss'.\nName one with --val"):  # fmt: skip
        read_log(path)
    assert val_of(path, columns={"val_loss": "eval_wiki_loss"}) == VAL


# --- tables


@pytest.mark.parametrize(
    "text",
    [
        CSV,
        CSV.replace(",", ";"),
        CSV.replace(",", ";").replace(".", ","),
        CSV.replace(",", "\t"),
        CSV.replace("\n", "\r\n"),
        "\ufeff" + CSV,
        CSV.encode("utf-16"),
        gzip.compress(CSV.encode()),
        "# " + CSV,
        "\n" + CSV,
        CSV.replace(",", " , "),
        'step,train_loss,note,val_loss\n0,3.1,"a, ""b""\nc",3.0\n100,1.9,,2.0\n200,1.4,x,1.5\n',
        CSV + "step,train_loss,val_loss\n",
        CSV + "300,1.3\n",
    ],
    ids=["comma", "semicolon", "decimal-comma", "tab", "crlf", "bom", "utf-16", "gzip", "hash",
         "blank-line", "spaces", "quoted", "second-header", "short-row"],
)  # fmt: skip
def test_a_table_is_read_however_it_is_written(written, text):
    log = read_log(written("log.csv", text))
    assert log.kind == "CSV"
    assert log.curves["val_loss"] == VAL


def test_lightnings_metrics_have_train_and_validation_on_rows_of_their_own(written, tmp_path):
    written(
        "lightning_logs/version_0/metrics.csv",
        "epoch,step,train_loss_epoch,train_loss_step,val_loss\n0,49,,2.1,\n0,99,,1.7,\n0,99,,,2.0\n0,99,1.9,,\n"
        "1,149,,1.2,\n1,199,,,1.5\n1,199,1.3,,\n",
    )
    log = read_log(tmp_path)
    assert log.columns["train_loss"] == "train_loss_epoch"
    assert log.curves["train_loss"] == [(99, 1.9), (199, 1.3)]
    assert log.curves["val_loss"] == [(99, 2.0), (199, 1.5)]


def test_of_several_versions_one_is_to_be_named(written, tmp_path):
    for version in (0, 1):
        written(f"version_{version}/metrics.csv", CSV)
    with pytest.raises(LogError, match=r"holds 2 logs: version_0/metrics.csv, version_1/metrics.csv.\nName one"):  # fmt: skip
        read_log(tmp_path)


def test_keras_logs_epochs_and_bare_names(written):
    text = "epoch,accuracy,loss,val_accuracy,val_loss\n0,0.5,2.0,0.4,3.0\n1,0.9,1.0,0.6,2.0\n"
    log = read_log(written("training.log", text))
    assert log.columns == {
        "step": "epoch", "train_loss": "loss", "val_loss": "val_loss", "train_accuracy": "accuracy",
        "val_accuracy": "val_accuracy",
    }  # fmt: skip


def test_a_chart_exported_from_wandb_has_the_runs_name_before_its_own(written):
    text = (
        '"Step","brisk-sun-7 - eval/loss","brisk-sun-7 - eval/loss__MIN","brisk-sun-7 - eval/loss__MAX"\n'
        '"0","3.0","3.0","3.0"\n"100","2.0","2.0","2.0"\n"200","1.5","1.5","1.5"\n'
    )
    assert val_of(written("export.csv", text)) == VAL


def test_wandbs_own_count_of_calls_is_not_the_step(written):
    text = "_step,_runtime,train/global_step,train/loss,eval/loss\n"
    text += "0,1,0,3.1,3.0\n1,2,100,1.9,2.0\n2,3,200,1.4,1.5\n"
    log = read_log(written("history.csv", text))
    assert log.columns["step"] == "train/global_step"
    assert log.curves["val_loss"] == VAL


# --- JSON Lines


def test_lines_of_dicts_as_nanogpt_logs_them(written):
    rows = [
        {"iter": s, "train/loss": x + 0.1, "val/loss": x, "lr": 6e-4, "mfu": -100.0} for s, x in VAL
    ]
    log = read_log(written("log.jsonl", "".join(json.dumps(r) + "\n" for r in rows)))
    assert log.kind == "JSON Lines"
    assert log.columns == {
        "step": "iter",
        "train_loss": "train/loss",
        "val_loss": "val/loss",
        "lr": "lr",
    }
    assert log.curves["val_loss"] == VAL


def test_dicts_as_the_trainer_prints_them_are_lines_too(written):
    text = "{'loss': 3.1, 'grad_norm': 1.0, 'epoch': 0.5}\n{'eval_loss': '2.0', 'epoch': '1.0'}\n"
    text += " 50%|#####     | 1/2\n{'loss': nan, 'epoch': 1.5}\n"
    log = read_log(written("out.txt", text))
    assert log.curves["val_loss"] == [(1, 2.0)]
    (first, (step, value)) = log.curves["train_loss"]
    assert first == (0.5, 3.1)
    assert step == 1.5 and math.isnan(value)
    assert log.notes == ("1 lines are no JSON objects and were left out, the first is line 3",)


def test_an_array_of_rows_is_read(written):
    rows = [{"step": s, "val_loss": x} for s, x in VAL]
    assert val_of(written("history.json", json.dumps(rows, indent=1))) == VAL


def test_lines_that_are_cut_or_mixed_in_are_left_out_and_counted(written):
    lines = [json.dumps({"step": s, "val_loss": x}) for s, x in VAL]
    lines.insert(1, "Epoch 1: 100%")
    log = read_log(written("log.jsonl", "\n".join([*lines, '{"step": 300, "val_l'])))
    assert log.curves["val_loss"] == VAL
    assert log.notes == ("2 lines are no JSON objects and were left out, the first is line 2",)


@pytest.mark.parametrize("spelling", ['"NaN"', "NaN", '"Infinity"', "-Infinity", '"inf"', "1e999"])
def test_numbers_that_are_not_finite_are_kept_in_any_spelling(written, spelling):
    text = f'{{"step": 1, "loss": 2.0}}\n{{"step": 2, "loss": {spelling}}}\n'
    (_, (step, value)) = read_log(written("log.jsonl", text)).curves["train_loss"]
    assert step == 2 and not math.isfinite(value)


def test_null_and_words_are_no_numbers_and_are_counted(written):
    text = '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": null}\n{"step": 3, "loss": "oops"}\n'
    log = read_log(written("log.jsonl", text))
    assert log.curves["train_loss"] == [(1, 2.0)]
    assert log.notes == (
        "1 cells of 'loss' are null: missing, or a NaN written that way",
        "1 cells of 'loss' hold no number and were left out",
    )


# --- our own


def test_a_run_folder_gives_its_curves_and_its_plateau(tmp_path):
    rows = [Record(metric="val_loss", value=x, step=s, seed=0, arm="dyt") for s, x in VAL]
    rows += [Record(metric="saturation@2", value=0.5, step=0, site="h.0.ln_1", seed=0, arm="dyt")]
    rows += [Record(metric="val_loss", value=9.0, step=200, endpoint="fixed_step", arm="dyt", seed=0)]  # fmt: skip
    with RunFolder(tmp_path / "run", asked={}, kind="train") as folder:
        folder.append(rows)
        folder.write_manifest({"plateau": {"val": 3.25}})
    log = read_log(tmp_path / "run")
    assert (log.kind, log.plateau) == ("run folder", 3.25)
    assert log.curves == {"val_loss": VAL}


def test_a_monitors_file_has_records_and_phases(written, tmp_path):
    lines = [to_line(Record(metric="val_loss", value=x, step=s)) for s, x in VAL]
    lines += [json.dumps({"step": 100, "phase": "generalising", "reason": "it fell"})]
    lines += [to_line(Record(metric="train_loss", value=math.nan, step=200))]
    written("triplepoint.jsonl", "\n".join(lines) + "\n")
    log = read_log(tmp_path)
    assert log.curves["val_loss"] == VAL
    assert math.isnan(log.curves["train_loss"][0][1])


def test_one_of_several_seeds_is_to_be_named(written):
    rows = [
        Record(metric="val_loss", value=x + seed, step=s, arm="dyt", seed=seed)
        for seed in (0, 1)
        for s, x in VAL
    ]
    path = written("records.jsonl", "".join(to_line(r) + "\n" for r in rows))
    with pytest.raises(LogError, match="holds 2 runs: dyt, seed 0; dyt, seed 1.\nName one: --run 'dyt, seed 0'"):  # fmt: skip
        read_log(path)
    assert val_of(path, run="dyt, seed 1") == [(s, x + 1) for s, x in VAL]
    with pytest.raises(LogError, match="has no run 'dyt'.\nIts runs are: dyt, seed 0; dyt, seed 1."):  # fmt: skip
        read_log(path, run="dyt")


# --- steps


def lines_of(*points):
    return "".join(f'{{"step": {s}, "val_loss": {x}}}\n' for s, x in points)


def test_steps_that_go_back_drop_what_was_from_there_on(written):
    # resumed at 100 with a coarser grid: the 2.9 at 150 is of the run that was given up
    path = written("log.jsonl", lines_of((50, 4), (100, 3), (150, 2.9), (200, 2.8), (100, 3.1), (200, 2.5)))  # fmt: skip
    log = read_log(path)
    assert log.curves["val_loss"] == [(50, 4), (100, 3.1), (200, 2.5)]
    (note,) = log.notes
    assert note.startswith("the steps of 'val_loss' go back 1 times (resumed?): 3 earlier values")
    assert "--step-column" in note


def test_the_last_of_a_steps_values_counts(written):
    log = read_log(written("log.jsonl", lines_of((1, 4), (1, 3), (2, 2))))
    assert log.curves["val_loss"] == [(1, 3), (2, 2)]
    assert log.notes == (
        "1 values of 'val_loss' were logged again at the same step; the last counts",
    )


def test_columns_go_back_on_their_own(written):
    # an evaluation that is written late is no restart of the training loss
    text = '{"step": 1, "loss": 3}\n{"step": 2, "loss": 2}\n{"step": 1, "val_loss": 4}\n{"step": 3, "loss": 1}\n'
    log = read_log(written("log.jsonl", text))
    assert log.curves["train_loss"] == [(1, 3), (2, 2), (3, 1)]
    assert log.notes == ()


def test_the_latest_row_may_be_first(written):
    log = read_log(written("log.jsonl", lines_of(*VAL[::-1])))
    assert (log.curves["val_loss"], log.notes) == (VAL, ())


def test_rows_without_a_step_are_left_out_and_counted(written):
    log = read_log(written("log.jsonl", lines_of(*VAL) + '{"val_loss": 9}\n'))
    assert log.curves["val_loss"] == VAL
    assert log.notes == ("1 values of 'val_loss' have no step and were left out",)


# --- accuracies


def test_percent_become_shares_in_both_accuracies(written):
    # 0.8 alone looks like a share; the other column says it is percent
    text = "step,train_acc,val_acc\n1,12.5,0.5\n2,97.5,0.8\n"
    log = read_log(written("log.csv", text))
    assert log.curves["train_accuracy"] == [(1, 0.125), (2, 0.975)]
    assert log.curves["val_accuracy"] == [(1, 0.005), (2, 0.008)]
    assert log.notes == ("accuracies are above 1 and were taken as percent",)


def test_more_than_100_percent_is_refused(written):
    with pytest.raises(LogError, match="An accuracy reaches 250: neither a share nor percent.\nName the right column"):  # fmt: skip
        read_log(written("log.csv", "step,train_acc\n1,250\n"))


# --- what cannot be read


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("", "is empty.", "Give a log with at least one row"),
        ("\n \n", "is empty.", "Give a log with at least one row"),
        (bytes(range(256)) * 9, "is binary, no log.", "Give trainer_state.json, CSV"),
        (b"step,loss\n1,\xff\xfe\xfa\n", "is no text in UTF-8", "Give trainer_state.json"),
        (b"\x1f\x8b\x08junk", "cannot be read", "Give trainer_state.json"),
        (gzip.compress(CSV.encode() * 99)[:-9], "cannot be read", "Give trainer_state.json"),
        ('{"a": ', "is no JSON", "Give trainer_state.json"),
        ('{\n"a": 1\n}', "is a JSON object without log_history", "an array of rows, or JSON Lines"),
        ('{"log_history": null}', "is a JSON object without log_history", "an array of rows"),
        ("[" * 100_000, "is no JSON", "Give trainer_state.json"),
        ("1,2,3\n4,5,6\n", "has no header: its first line is '1,2,3'", "Name the columns"),
        ("hello world\n", "has no header", "e.g. step,train_loss,val_loss"),
        ("step,train_loss\n", "has no rows.", "at least one row"),
        ("a,loss\n1,2\n", "has no column of steps.\nIts columns are: a, loss.", "--step-column"),
        ("step,b\n1,2\n", "has no column of losses or accuracies.\nIts columns are: step, b.", "--train or --val"),
        ("step,loss\n1,x\n", "has no column of losses", "--train or --val"),
        ('{"x": 1}\n', "has no column of steps", "--step-column"),
    ],
    ids=["empty", "blank", "binary", "latin-1", "no-gzip", "cut-gzip", "cut-json", "object", "null-history", "deep",
         "no-header", "prose", "header-only", "no-steps", "no-losses", "no-numbers", "no-columns"],
)  # fmt: skip
def test_what_is_no_log_is_refused_with_advice(written, text, first, second):
    path = written("log", text)
    with pytest.raises(LogError) as caught:
        read_log(path)
    assert str(path) in str(caught.value)
    assert first in str(caught.value)
    assert second in str(caught.value).partition("\n")[2]


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(LogError, match=r"nowhere.csv cannot be read: No such file or directory.\nGive"):  # fmt: skip
        read_log(tmp_path / "nowhere.csv")
    with pytest.raises(LogError, match="cannot be read: File name too long.\nGive"):
        read_log("x" * 5000)
    with pytest.raises(LogError, match="holds no log: no trainer_state.json.*\nName the file itself"):  # fmt: skip
        read_log(tmp_path)
