"""Tests of triplepoint.data.corpus."""

import hashlib
import itertools
import json
import math

import pytest
import torch

from triplepoint.data import Corpus
from triplepoint.errors import DataError, PlanError, UnknownNameError


def counting(train=1000, validation=200, report=100):
    """Train is 0, 1, 2, ...; validation goes on where it ends, then report: ids tell places."""
    ids = torch.arange(train + validation + report, dtype=torch.int32)
    parts = ids.split([train, validation, report])
    return Corpus.from_tokens(*parts, vocab=len(ids), source="counting")


def starts(windows):
    return windows[:, 0].tolist()


def first(stream, count):
    return list(itertools.islice(stream, count))


def test_windows_are_runs_of_their_own_split():
    corpus = counting()
    for split, low, high in (
        ("train", 0, 1000),
        ("validation", 1000, 1200),
        ("report", 1200, 1300),
    ):
        windows = corpus.windows(split, context=9, count=50)
        assert windows.shape == (50, 10)
        assert windows.dtype == torch.int64
        assert (windows.diff(dim=1) == 1).all()
        assert low <= windows.min() and windows.max() < high


def test_windows_start_at_distinct_places_while_there_are_enough():
    # 200 tokens and a context of 9 have 191 starts: asked for all, each comes once
    every = starts(counting().windows("validation", context=9, count=191))
    assert sorted(every) == list(range(1000, 1191))


def test_windows_repeat_starts_where_the_split_is_short():
    corpus = counting(report=11)
    windows = corpus.windows("report", context=9, count=40)
    assert corpus.starts("report", context=9) == 2
    assert set(starts(windows)) == {1200, 1201}
    assert windows.shape == (40, 10)


def test_one_window_is_enough():
    windows = counting(report=10).windows("report", context=9, count=3)
    assert windows.tolist() == [list(range(1200, 1210))] * 3


def test_windows_are_fixed_and_another_seed_gives_others():
    corpus = counting()
    again = corpus.windows("validation", context=9)
    assert torch.equal(corpus.windows("validation", context=9), again)
    assert not torch.equal(corpus.windows("validation", context=9, seed=1), again)


def test_validation_windows_do_not_depend_on_the_train_split():
    short, long = counting(), counting()
    short = Corpus.from_tokens(
        long.train[:50], long.validation, long.report, vocab=1300, source="counting"
    )
    for split in ("validation", "report"):
        assert torch.equal(short.windows(split, context=9), long.windows(split, context=9))
    assert short.sha256 != long.sha256


@pytest.mark.parametrize("start", [0, 1, 7])
def test_batches_resume_at_any_step(start):
    corpus = counting()
    whole = first(corpus.batches(3, batch=4, context=9), start + 3)
    resumed = first(corpus.batches(3, batch=4, context=9, start=start), 3)
    assert all(map(torch.equal, whole[start:], resumed))


def test_batches_resume_far_out_at_once():
    batch = next(counting().batches(0, batch=4, context=9, start=10**12))
    assert batch.shape == (4, 10)


def test_batches_are_runs_of_the_train_split():
    for batch in first(counting().batches(0, batch=8, context=9), 20):
        assert batch.shape == (8, 10)
        assert batch.dtype == torch.int64
        assert (batch.diff(dim=1) == 1).all()
        assert batch.max() < 1000


def test_batches_differ_between_steps_and_seeds():
    corpus = counting()
    seen = [tuple(starts(b)) for b in first(corpus.batches(0, batch=8, context=9), 20)]
    other = [tuple(starts(b)) for b in first(corpus.batches(1, batch=8, context=9), 20)]
    assert len({*seen, *other}) == 40


def test_batches_reach_every_start_about_equally():
    corpus = counting(train=14)
    drawn = torch.cat([b[:, 0] for b in first(corpus.batches(0, batch=50, context=9), 100)])
    counts = torch.bincount(drawn)
    # 5 starts, 5000 draws: 1000 each with a standard deviation of 28
    assert counts.numel() == 5
    assert ((counts - 1000).abs() < 150).all()


def test_two_streams_do_not_disturb_each_other():
    corpus = counting()
    alone = first(corpus.batches(0, batch=4, context=9), 3)
    stream, other = corpus.batches(0, batch=4, context=9), corpus.batches(9, batch=2, context=5)
    mixed = [(next(stream), next(other))[0] for _ in range(3)]
    assert all(map(torch.equal, alone, mixed))


def test_global_random_state_is_neither_read_nor_moved():
    corpus = counting()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    windows, batch = corpus.windows("train", context=9), next(corpus.batches(0, batch=4, context=9))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert torch.equal(corpus.windows("train", context=9), windows)
    assert torch.equal(next(corpus.batches(0, batch=4, context=9)), batch)


def test_unigram_cross_entropy_worked_by_hand():
    train, other = torch.tensor([0, 0, 0, 0, 1]), torch.tensor([0, 1, 2])
    corpus = Corpus.from_tokens(train, other, other, vocab=3, source="by hand")
    # add one: (4 + 1, 1 + 1, 0 + 1) / (5 + 3); the first column is not predicted
    windows = torch.tensor([[2, 0, 1], [2, 0, 2]])
    expected = -(2 * math.log(5 / 8) + math.log(2 / 8) + math.log(1 / 8)) / 4
    assert corpus.unigram_cross_entropy(windows) == pytest.approx(expected)


def test_unigram_cross_entropy_of_an_even_text_is_the_log_of_the_vocabulary():
    even = torch.arange(8).repeat(5)
    corpus = Corpus.from_tokens(even, even, even, vocab=8, source="even")
    windows = corpus.windows("report", context=6)
    assert corpus.unigram_cross_entropy(windows) == pytest.approx(math.log(8))


def test_counts_and_ids_are_the_same_in_small_chunks(monkeypatch):
    corpus = counting()
    windows = corpus.windows("report", context=9)
    whole = corpus.unigram_cross_entropy(windows)
    monkeypatch.setattr("triplepoint.data.tokens._CHUNK", 7)
    chunked = counting()
    assert chunked.sha256 == corpus.sha256
    assert chunked.unigram_cross_entropy(windows) == pytest.approx(whole)
    with pytest.raises(DataError, match="Token id 50 at offset 50 of the train split"):
        Corpus.from_tokens(corpus.train, corpus.train, corpus.train, vocab=50, source="counting")


def test_sha256_is_of_the_stored_tokens_in_order():
    parts = [torch.tensor(list(text), dtype=torch.uint8) for text in (b"train", b"val", b"rep")]
    corpus = Corpus.from_tokens(*parts, vocab=256, source="three words", unit="byte")
    assert corpus.sha256 == hashlib.sha256(b"trainvalrep").hexdigest()


def test_describe_is_json_and_counts_tokens():
    facts = counting().describe()
    assert json.loads(json.dumps(facts)) == facts
    assert [facts[f"{s}_tokens"] for s in ("train", "validation", "report")] == [1000, 200, 100]
    assert (facts["vocab"], facts["unit"], facts["source"]) == (1300, "token", "counting")
    assert "python" not in facts


def test_window_longer_than_the_split_says_what_it_needs():
    corpus = counting(report=9)
    message = r"The report split has 9 tokens; a window of context 9 needs 10\.\nGive a longer"
    with pytest.raises(DataError, match=message):
        corpus.windows("report", context=9)
    with pytest.raises(DataError, match="The train split has 1000 tokens; .* needs 1001"):
        # at the call, not at the first step
        corpus.batches(0, batch=1, context=1000)


def test_unknown_split_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="There is no split 'valid'.\nDid you mean 'valid"):
        counting().windows("valid", context=9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.windows("train", context=0), "context must be at least 1, got 0"),
        (lambda c: c.windows("train", context=4, count=0), "count must be at least 1, got 0"),
        (lambda c: c.windows("train", context=4, seed=-1), "seed must be at least 0, got -1"),
        (lambda c: c.batches(-1, batch=1, context=4), "seed must be at least 0, got -1"),
        (lambda c: c.batches(0, batch=0, context=4), "batch must be at least 1, got 0"),
        (lambda c: c.batches(0, batch=1, context=4, start=-2), "start must be at least 0, got -2"),
    ],
    ids=["context", "count", "window-seed", "seed", "batch", "start"],
)
def test_numbers_out_of_range_are_named(call, message):
    with pytest.raises(PlanError, match=message + r"\.\nGive a whole number of \d or more"):
        call(counting())


def test_ids_outside_the_vocabulary_are_named_with_their_place():
    good, bad = torch.tensor([0, 1, 2]), torch.tensor([0, 1, 3])
    message = (
        r"Token id 3 at offset 2 of the report split is outside the vocabulary of 3 ids\.\nPass"
    )
    with pytest.raises(DataError, match=message):
        Corpus.from_tokens(good, good, bad, vocab=3, source="x")
    with pytest.raises(DataError, match="Token id -1 at offset 0 of the train split"):
        Corpus.from_tokens(good - 1, good, good, vocab=3, source="x")


def test_tokens_that_are_no_row_of_integers_are_refused():
    row = torch.tensor([0, 1, 2])
    with pytest.raises(DataError, match=r"the train split is torch.float32 of shape \[3\]\.\nPass"):
        Corpus.from_tokens(row.float(), row, row, vocab=3, source="x")
    with pytest.raises(DataError, match=r"the report split is torch.int64 of shape \[1, 3\]"):
        Corpus.from_tokens(row, row, row[None], vocab=3, source="x")


def test_unigram_cross_entropy_refuses_what_is_no_window():
    with pytest.raises(DataError, match=r"got shape \[5\]\.\nPass what `corpus.windows"):
        counting().unigram_cross_entropy(torch.arange(5))
    with pytest.raises(DataError, match="Token id 1300 at offset 0 of the windows is outside"):
        counting().unigram_cross_entropy(torch.tensor([[0, 1300]]))
