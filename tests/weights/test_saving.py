"""Tests of triplepoint.weights.saving."""

import pytest
import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from triplepoint.errors import CheckpointError, RunFolderError
from triplepoint.weights import load_into, load_tensors, save_tensors, saving


class Tied(nn.Module):
    """A table and a head that are one parameter."""

    def __init__(self, dim=3):
        super().__init__()
        self.table = nn.Embedding(5, dim)
        self.head = nn.Linear(dim, 5, bias=False)
        self.head.weight = self.table.weight


def names_in_file(path):
    with safe_open(path, framework="pt") as file:
        return sorted(file.keys())


def message_of(error, call, *args, **options):
    with pytest.raises(error) as caught:
        call(*args, **options)
    return str(caught.value).split("\n")


def test_tensors_of_any_dtype_and_shape_read_back_bit_for_bit(tmp_path):
    tensors = {
        "matrix": torch.randn(3, 4),
        "transposed": torch.randn(3, 4).T,
        "scalar": torch.tensor(7, dtype=torch.int64),
        "half": torch.randn(5).bfloat16(),
        "nan": torch.tensor([float("nan"), float("inf")]),
        "bytes": torch.get_rng_state(),
        "empty": torch.zeros(0, 2),
        "empty too": torch.zeros(0, 2),
    }
    save_tensors(tmp_path / "w", tensors)
    back = load_tensors(tmp_path / "w")
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        torch.testing.assert_close(back[name], tensor, rtol=0, atol=0, equal_nan=True)


def test_tied_tensors_are_written_once_and_come_back_as_one(tmp_path):
    state = Tied().state_dict()
    save_tensors(tmp_path / "w", state)
    assert names_in_file(tmp_path / "w") == ["table.weight"]
    back = load_tensors(tmp_path / "w")
    assert back.keys() == state.keys()
    assert back["head.weight"] is back["table.weight"]


def test_three_names_of_one_tensor_come_back_as_one(tmp_path):
    one = torch.randn(4)
    save_tensors(tmp_path / "w", {"a": one, "b": one, "c": one.detach()})
    back = load_tensors(tmp_path / "w")
    assert back["a"] is back["b"] is back["c"]


def test_equal_values_in_different_memory_are_no_tie(tmp_path):
    save_tensors(tmp_path / "w", {"a": torch.ones(4), "b": torch.ones(4)})
    assert names_in_file(tmp_path / "w") == ["a", "b"]


def test_views_that_share_part_of_their_memory_are_written_in_full(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    views = {
        "whole": whole,
        "rows": whole[:2],
        "same start": whole[:, :2],
        "turned": whole[:, :3].T,
    }
    save_tensors(tmp_path / "w", views)
    assert names_in_file(tmp_path / "w") == sorted(views)
    back = load_tensors(tmp_path / "w")
    for name, view in views.items():
        assert torch.equal(back[name], view)


def test_saving_leaves_the_tensors_alone(tmp_path):
    parameter = nn.Parameter(torch.randn(3))
    save_tensors(tmp_path / "w", {"p": parameter})
    back = load_tensors(tmp_path / "w")["p"]
    assert not back.requires_grad
    assert parameter.requires_grad
    back.zero_()
    assert parameter.detach().abs().sum() > 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-8],
        lambda content: content[:5],
        lambda _: b"",
        lambda _: b"\xff" * 99,
    ],
    ids=["cut", "no header", "empty", "garbage"],
)
def test_a_damaged_file_is_named_with_what_to_do(tmp_path, damage):
    path = tmp_path / "step-000100" / "model.safetensors"
    path.parent.mkdir()
    save_tensors(path, {"a": torch.randn(50)})
    path.write_bytes(damage(path.read_bytes()))
    problem, remedy = message_of(CheckpointError, load_tensors, path)
    assert problem.startswith(f"{path} cannot be read as safetensors (")
    assert remedy == (
        f"It is cut or damaged: delete the folder {path.parent} and run the same command again; "
        "it resumes from the checkpoint before."
    )


def test_a_missing_file_is_named(tmp_path):
    problem, _ = message_of(CheckpointError, load_tensors, tmp_path / "none.safetensors")
    assert problem.startswith(f"{tmp_path / 'none.safetensors'} cannot be read as safetensors (")


def test_a_full_disk_leaves_the_old_file_and_says_what_to_do(tmp_path, monkeypatch):
    def no_space(tensors, path, metadata):
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    path = tmp_path / "model.safetensors"
    save_tensors(path, {"a": torch.ones(2)})
    monkeypatch.setattr(saving, "save_file", no_space)
    problem, remedy = message_of(RunFolderError, save_tensors, path, {"a": torch.zeros(2)})
    assert problem == (
        f"{path} cannot be written: I/O error: No space left on device (os error 28)."
    )
    assert remedy.startswith("Free some space or choose another folder with --out")
    assert torch.equal(load_tensors(path)["a"], torch.ones(2))
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_loading_into_a_module_keeps_its_ties(tmp_path):
    first, second = Tied(), Tied()
    save_tensors(tmp_path / "w", first.state_dict())
    load_into(second, load_tensors(tmp_path / "w"), source=tmp_path)
    assert torch.equal(second.head.weight, first.table.weight)
    assert second.head.weight is second.table.weight


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        (Tied(dim=4), "size mismatch for head.weight: copying a param with shape torch.Size([5, 4]) from "
         "checkpoint, the shape in current model is torch.Size([5, 3])."),
        (nn.Linear(3, 5), 'Unexpected key(s) in state_dict: "weight", "bias".'),
        (nn.Module(), 'Missing key(s) in state_dict: "table.weight", "head.weight".'),
    ],
    ids=["shapes", "unexpected", "missing"],
)  # fmt: skip
def test_another_models_weights_are_refused(tmp_path, other, problem):
    assert message_of(CheckpointError, load_into, Tied(), other.state_dict(), source=tmp_path) == [
        f"{tmp_path} does not fit the model: {problem}",
        "It was written by another model; choose another folder with --out.",
    ]


def test_no_tensors_at_all_are_read_back_as_none(tmp_path):
    save_tensors(tmp_path / "empty.safetensors", {})
    assert load_tensors(tmp_path / "empty.safetensors") == {}
