"""Tests of triplepoint.records."""

import dataclasses
import json
import math

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from triplepoint.errors import RunFolderError
from triplepoint.records import (
    FIELDS,
    SCHEMA_VERSION,
    Record,
    from_line,
    read_jsonl,
    read_parquet,
    to_line,
    write_parquet,
)

FULL = Record(
    metric="saturation@2", value=0.25, low=0.1, high=math.inf, n=2**40, unit="share",
    endpoint="fixed_step", step=500, site="h.0.ln_1", arm="dyt:paper", seed=0,
)  # fmt: skip
BARE = Record(metric="val_loss", value=2.5)
ODD = [Record(metric="m", value=value) for value in (math.nan, math.inf, -math.inf, 0.0, 5e-324)]


def same(first, second):
    """Equality under which nan equals nan."""
    return all(
        pytest.approx(a, rel=0, abs=0, nan_ok=True) == b if isinstance(a, float) else a == b
        for a, b in zip(dataclasses.astuple(first), dataclasses.astuple(second), strict=True)
    )


def write_lines(path, *lines):
    path.write_bytes(b"".join(lines))
    return path


def line_of(record):
    return f"{to_line(record)}\n".encode()


floats = st.floats(allow_nan=True, allow_infinity=True)
names = st.text(min_size=1)
records = st.builds(
    Record,
    metric=names,
    value=floats,
    low=st.none() | floats,
    n=st.none() | st.integers(0, 2**62),
    site=st.none() | names,
    step=st.none() | st.integers(0, 2**62),
)


@given(records)
@example(Record(metric="m", value=math.nan, low=-math.inf))
def test_a_line_reads_back_as_the_record_it_was(record):
    line = to_line(record)
    assert "\n" not in line
    assert same(from_line(line), record)


@pytest.mark.parametrize("record", [FULL, BARE, *ODD], ids=str)
def test_known_records_read_back(record):
    assert same(from_line(to_line(record)), record)


def test_a_line_is_strict_json_without_the_fields_that_are_none():
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    for record in (FULL, BARE, *ODD):
        json.loads(to_line(record), parse_constant=refuse)
    assert to_line(BARE) == '{"metric": "val_loss", "value": 2.5}'
    assert json.loads(to_line(FULL))["seed"] == 0  # zero is not None


def test_a_file_of_lines_reads_in_order(tmp_path):
    path = write_lines(tmp_path / "records.jsonl", line_of(FULL), line_of(BARE))
    assert read_jsonl(path) == [FULL, BARE]
    assert read_jsonl(write_lines(path)) == []


def test_a_last_line_that_a_crash_cut_is_dropped(tmp_path):
    for cut in (b'{"metric": "val_lo', line_of(FULL)[:-1]):
        path = write_lines(tmp_path / "records.jsonl", line_of(BARE), cut)
        assert read_jsonl(path) == [BARE]


@pytest.mark.parametrize(
    "damaged",
    [b"{broken\n", b"\n", b"[1, 2]\n", b"3\n", b'{"metric": "m"}\n', b'{"metric": "m", "value": 1, "color": 2}\n',
     b"\xff\xfe\n", b'{"metric": "m", "value": "much"}\n'],
)  # fmt: skip
def test_a_damaged_line_in_the_middle_is_named(tmp_path, damaged):
    path = write_lines(tmp_path / "records.jsonl", line_of(BARE), damaged, line_of(BARE))
    with pytest.raises(RunFolderError) as caught:
        read_jsonl(path)
    problem, remedy = str(caught.value).split("\n")
    assert problem.startswith(f"{path}, line 2: not a record (")
    assert remedy == "The file was changed by another program; restore it or start in a new folder."


def test_parquet_reads_back_what_was_written(tmp_path):
    path = tmp_path / "records.parquet"
    write_parquet(iter([FULL, BARE, *ODD]), path)
    back = read_parquet(str(path))
    assert len(back) == 2 + len(ODD)
    assert all(map(same, back, [FULL, BARE, *ODD]))


def test_parquet_keeps_nan_apart_from_missing(tmp_path):
    write_parquet([Record(metric="m", value=1, low=math.nan)], tmp_path / "r")
    (back,) = read_parquet(tmp_path / "r")
    assert math.isnan(back.low)
    assert back.high is None
    assert type(back.value) is float


def test_parquet_of_nothing_has_the_same_columns(tmp_path):
    write_parquet([], tmp_path / "none")
    write_parquet([FULL], tmp_path / "one")
    assert read_parquet(tmp_path / "none") == []
    schemas = [pq.read_schema(tmp_path / name) for name in ("none", "one")]
    assert schemas[0] == schemas[1]
    assert schemas[0].names == list(FIELDS)
    assert schemas[0].metadata[b"triplepoint_schema"] == str(SCHEMA_VERSION).encode()


@pytest.mark.parametrize("content", [b"", b"not parquet", None])
def test_a_file_that_is_no_parquet_says_how_to_get_it_again(tmp_path, content):
    path = tmp_path / "records.parquet"
    if content is None:
        write_parquet([FULL], path)
        content = path.read_bytes()[:-40]
    path.write_bytes(content)
    with pytest.raises(RunFolderError) as caught:
        read_parquet(path)
    problem, remedy = str(caught.value).split("\n")[0], str(caught.value).split("\n")[-1]
    assert problem.startswith(f"{path} is not a Parquet file of records (")
    assert remedy == ("Delete it: the command that made it writes it again from records.jsonl.")
