"""Tests of triplepoint.logs.events: TensorBoard's files, written by TensorBoard's own writer."""

import sys

import pytest

from triplepoint.errors import LogError, MissingExtraError
from triplepoint.logs import read_log

VAL = [(0, 3.0), (100, 2.0), (200, 1.5)]


def write(folder, *points, as_tensor=False):
    """Write (step, tag, value) as event files have them: plain values, or tensors as TensorFlow 2 does."""
    writers = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.util.tensor_util import make_tensor_proto

    writer = writers.EventFileWriter(str(folder))
    for step, tag, value in points:
        what = {"simple_value": value}
        if as_tensor:
            what = {"tensor": make_tensor_proto(float(value), dtype="float32")}
        writer.add_event(Event(step=step, summary=Summary(value=[Summary.Value(tag=tag, **what)])))
    writer.close()
    return next(folder.glob("*tfevents*"))


def val_points(tag="eval/loss", points=VAL):
    return [(step, tag, value) for step, value in points]


@pytest.mark.parametrize("as_tensor", [False, True], ids=["plain", "tensor"])
def test_scalars_of_a_file_and_of_its_folder(tmp_path, as_tensor):
    rows = [*val_points(), (0, "train/loss", 3.5), (100, "train/loss", 2.5)]
    path = write(tmp_path / "runs" / "Nov30_host", *rows, as_tensor=as_tensor)
    for given in (path, tmp_path):
        log = read_log(given)
        assert log.kind == "TensorBoard events"
        assert log.curves == {"val_loss": VAL, "train_loss": [(0, 3.5), (100, 2.5)]}


def test_folders_of_train_and_validation_are_one_run(tmp_path):
    # as Keras does it: the same tag in both
    write(tmp_path / "train", *val_points("epoch_loss", [(0, 3.5), (1, 2.5)]), as_tensor=True)
    write(tmp_path / "validation", *val_points("epoch_loss"), as_tensor=True)
    log = read_log(tmp_path)
    assert log.columns["train_loss"] == "train/epoch_loss"
    assert log.curves["val_loss"] == VAL


def test_one_of_several_runs_is_to_be_named(tmp_path):
    write(tmp_path / "a", *val_points())
    write(tmp_path / "b", *val_points(points=[(0, 9.0)]))
    with pytest.raises(LogError, match="holds 2 runs: a; b.\nName one: --run 'a'."):
        read_log(tmp_path)
    assert read_log(tmp_path, run="b").curves["val_loss"] == [(0, 9.0)]


def test_a_resumed_run_goes_on_in_a_second_file(tmp_path):
    first = write(tmp_path, *val_points())
    first.rename(tmp_path / "events.out.tfevents.0000000001.host")
    write(tmp_path, *val_points(points=[(100, 1.9), (300, 1.2)]))
    log = read_log(tmp_path)
    assert log.curves["val_loss"] == [(0, 3.0), (100, pytest.approx(1.9)), (300, pytest.approx(1.2))]  # fmt: skip
    assert "go back 1 times" in log.notes[0]


@pytest.mark.parametrize("bytes_lost", [1, 5, 20, 35])
def test_a_record_that_is_cut_is_left_out_with_a_note(tmp_path, bytes_lost):
    path = write(tmp_path, *val_points())
    path.write_bytes(path.read_bytes()[:-bytes_lost])
    log = read_log(path)
    assert log.curves["val_loss"] == VAL[: len(log.curves["val_loss"])]
    assert len(log.curves["val_loss"]) == 2
    assert log.notes == (f"{path.name} ends in the middle of a record, which was left out",)


def test_junk_is_refused(tmp_path):
    pytest.importorskip("tensorboard")
    path = tmp_path / "events.out.tfevents.1"
    # a record of 8 bytes that are no message
    path.write_bytes((8).to_bytes(8, "little") + b"\0" * 4 + b"\xff" * 8 + b"\0" * 4)
    with pytest.raises(LogError, match="cannot be read as TensorBoard events.*\nGive a file that TensorBoard shows"):  # fmt: skip
        read_log(path)
    path.write_bytes(bytes(range(256)) * 40)
    with pytest.raises(LogError, match="has no rows.\nGive a log with at least one row"):
        read_log(path)


def test_a_missing_tensorboard_names_its_extra(tmp_path, monkeypatch):
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    with pytest.raises(MissingExtraError, match=r"Install it with: pip install 'triplepoint\[tensorboard\]'"):  # fmt: skip
        read_log(path)
