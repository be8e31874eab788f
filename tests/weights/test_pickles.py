"""Tests of what a pickle would call and build: few bytes that stand for values without end."""

import math
import pickle
import zipfile

import pytest
import torch

from triplepoint.errors import CheckpointError
from triplepoint.weights import open_checkpoint
from triplepoint.weights.pickles import written_out


def archive(path, data_pkl):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("w/data.pkl", data_pkl)
        file.writestr("w/version", "3")
    return path


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_values_are_counted_wherever_they_are_used(protocol):
    inner = ["x", 1.5]
    value = {"a": inner, "b": (inner, inner)}
    # the dictionary, two keys, three lists of 1 + 2, one tuple
    assert written_out(pickle.dumps(value, protocol))[0] == 1 + 2 + 3 * 3 + 1


def test_a_list_that_is_filled_after_it_was_used_counts_as_filled():
    inner = []
    outer = [inner, inner]
    inner.append([1, 2, 3])
    assert written_out(pickle.dumps(outer, 2))[0] == 1 + 2 * (1 + 4)


def test_a_value_that_holds_itself_has_no_end():
    value = {}
    value["itself"] = value
    assert written_out(pickle.dumps(value, 2))[0] == math.inf


@pytest.mark.parametrize(
    "body",
    [
        # hashing the key, printing what cannot be called, walking the dictionaries: each for ever
        b"}" + b"K\x01q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"K\x01s.",
        b"K\x01q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b")R.",
        b"K\x01q\x00" + b"}(K\x01h\x00K\x02h\x00uq\x00" * 60 + b".",
    ],
    ids=["hashed", "printed", "walked"],
)
def test_a_pickle_of_values_without_end_is_refused_unread(tmp_path, body):
    path = archive(tmp_path / "w.pt", b"\x80\x02" + body)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    problem, remedy = str(caught.value).split("\n")
    assert problem.startswith(f"{path} holds values within values without end: ")
    assert problem.endswith("values; it was refused.")
    assert remedy.startswith("Weights do not need that: get the file from its source again")


def test_weights_under_several_keys_are_no_bomb(tmp_path):
    state = {f"{i}.weight": torch.ones(2, 2) for i in range(2000)}
    torch.save({"model": state, "ema": state, "best": state}, tmp_path / "w.pt")
    assert len(open_checkpoint(tmp_path / "w.pt").entries) == 2000


def test_a_pickle_whose_calls_do_not_show_says_so(tmp_path):
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt", pickle_protocol=4)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(tmp_path / "w.pt")
    problem, remedy = str(caught.value).split("\n")
    assert "is a pickle of protocol 4 or newer: what it calls does not show until it is" in problem
    assert remedy.endswith("with torch.save(model.state_dict(), path) and no pickle_protocol.")
