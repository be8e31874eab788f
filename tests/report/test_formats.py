"""Tests of triplepoint.report.formats."""

import math

import pytest

from triplepoint.report import formats


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (formats.loss, 3.05062, "3.051"),
        (formats.loss, None, "–"),
        (formats.loss, math.nan, "not finite"),
        (formats.change, 0.0123, "+1.2 %"),
        (formats.change, -0.0123, "−1.2 %"),
        (formats.share, 0.187, "18.7 %"),
        (formats.share, 0.0001, "below 0.1 %"),
        (formats.share, 0.0, "0.0 %"),
        (formats.offset, -0.034, "−0.034"),
        (formats.count, 10_000_000, "10,000,000"),
        (formats.duration, 0.0462, "46.2 ms"),
        (formats.duration, 59.0, "59 s"),
        (formats.duration, 742, "12.4 min"),
        (formats.duration, 36 * 3600, "36 h"),
        (formats.duration, 4 * 86400, "4 days"),
        (formats.memory, 1.5 * 2**30, "1.5 GiB"),
        (formats.memory, 512, "512 bytes"),
    ],
)
def test_numbers_read_as_written_by_hand(function, value, expected):
    assert function(value).replace("\xa0", " ") == expected


@pytest.mark.parametrize("interval", [None, [], [None, 0.1], [math.nan, 0.1]])
def test_interval_that_is_not_known_is_left_out(interval):
    assert formats.change_interval(interval) == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "–"), (True, "yes"), ([0, 1], "0, 1"), ({"a": {"b": 0.001}}, "a b 0.001"), ([], "–")],
)
def test_plain_takes_whatever_a_manifest_holds(value, expected):
    assert formats.plain(value) == expected
