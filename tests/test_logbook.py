"""Tests of triplepoint.logbook."""

import math

import pytest

from triplepoint.errors import RunFolderError
from triplepoint.logbook import Logbook, PhaseLine, read_logbook
from triplepoint.records import Record


def loss(step, value=1.0):
    return Record(metric="val_loss", value=value, unit="nats/token", step=step)


def write(path, *steps, start=0):
    book = Logbook(path, step=start)
    for step in steps:
        book.write([loss(step)], PhaseLine(step, "fitting", f"because of step {step}"))
    book.close()
    return book


def test_what_is_written_is_read_back_and_is_there_at_once(tmp_path):
    book = Logbook(tmp_path / "deep" / "log.jsonl")
    book.write([loss(1), loss(2, math.nan)], PhaseLine(2, "diverged", "not finite"))
    records, phases = read_logbook(book.path)
    assert records[0] == loss(1)
    assert math.isnan(records[1].value)
    assert phases == [(2, "diverged", "not finite")]
    book.close()


def test_a_phase_is_written_where_it_or_its_reason_changes(tmp_path):
    book = Logbook(tmp_path / "log.jsonl")
    for step, reason in ((1, "a"), (2, "a"), (3, "b"), (4, None)):
        book.write([], None if reason is None else PhaseLine(step, "fitting", reason))
    book.close()
    assert read_logbook(book.path)[1] == [(1, "fitting", "a"), (3, "fitting", "b")]


def test_a_resumed_run_keeps_the_lines_up_to_its_step(tmp_path):
    write(tmp_path / "log.jsonl", 1, 2, 3)
    book = write(tmp_path / "log.jsonl", 3, 4, start=2)
    assert book.records == [loss(1), loss(2)]
    records, phases = read_logbook(book.path)
    assert [r.step for r in records] == [p.step for p in phases] == [1, 2, 3, 4]


def test_a_new_run_never_overwrites_an_old_one(tmp_path):
    for step in (1, 2, 3):
        write(tmp_path / "log.jsonl", step)
    names = {"log.jsonl": 3, "log.1.jsonl": 1, "log.2.jsonl": 2}
    assert {p.name for p in tmp_path.iterdir()} == set(names)
    for name, step in names.items():
        assert read_logbook(tmp_path / name)[0] == [loss(step)]


def test_a_line_cut_by_a_crash_is_dropped_and_the_run_goes_on(tmp_path):
    path = write(tmp_path / "log.jsonl", 1, 2).path
    path.write_text(path.read_text()[:-10])
    write(path, 3, start=2)
    assert [r.step for r in read_logbook(path)[0]] == [1, 2, 3]


def test_errors_say_what_to_try(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"loss": 1}\n')
    message = r"line 1: neither a record nor a phase .*\nThe file was changed by another program"
    with pytest.raises(RunFolderError, match=message):
        Logbook(path, step=1)
    (tmp_path / "file").write_text("")
    message = r"cannot be written: .*\nFree some space, or give the monitor another path\."
    with pytest.raises(RunFolderError, match=message):
        Logbook(tmp_path / "file" / "log.jsonl")


def test_a_file_that_is_no_text_is_no_logbook(tmp_path):
    (tmp_path / "log.jsonl").write_bytes(b"\xff\xfe\x00\n")
    with pytest.raises(RunFolderError, match="is no logbook: it is no text.\nMove it away"):
        Logbook(tmp_path / "log.jsonl", step=2)
    assert (tmp_path / "log.jsonl").read_bytes() == b"\xff\xfe\x00\n"
