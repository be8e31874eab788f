"""Logs written by the tools themselves, where they are installed."""

import json

import pytest

from triplepoint.logs import read_log

pytestmark = pytest.mark.slow  # the tools import torch

VAL = [(100, 2.0), (200, 1.5)]


def test_a_state_that_the_hugging_face_trainer_saves(tmp_path):
    transformers = pytest.importorskip("transformers")
    history = [
        {"loss": x + 0.5, "learning_rate": 1e-4, "epoch": s / 100, "step": s} for s, x in VAL
    ]
    history += [{"eval_loss": x, "eval_runtime": 0.1, "epoch": s / 100, "step": s} for s, x in VAL]
    folder = tmp_path / "checkpoint-200"
    folder.mkdir()
    state = transformers.TrainerState(log_history=history, global_step=200, best_metric=1.5)
    state.save_to_json(str(folder / "trainer_state.json"))
    log = read_log(tmp_path)
    assert log.curves["val_loss"] == VAL
    assert log.curves["train_loss"] == [(100, 2.5), (200, 2.0)]


def test_the_folder_of_lightnings_csv_logger(tmp_path):
    loggers = pytest.importorskip("lightning.fabric.loggers")
    logger = loggers.CSVLogger(str(tmp_path), name="lightning_logs")
    for step, x in VAL:
        logger.log_metrics({"train_loss": x + 0.5}, step=step)
        logger.log_metrics({"val_loss": x}, step=step)
    logger.finalize("success")
    log = read_log(tmp_path)
    assert log.kind == "CSV"
    assert log.curves["val_loss"] == VAL
    assert log.curves["train_loss"] == [(100, 2.5), (200, 2.0)]


def test_the_folder_of_torchs_summary_writer(tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        for step, x in VAL:
            writer.add_scalar("Loss/train", x + 0.5, step)
            writer.add_scalar("Loss/val", x, step)
    log = read_log(tmp_path)
    assert log.columns == {"step": "step", "train_loss": "Loss/train", "val_loss": "Loss/val"}
    assert log.curves["val_loss"] == VAL
    assert json.dumps(log.curves["train_loss"]) == "[[100, 2.5], [200, 2.0]]"
