"""Tests of opening anybody's checkpoint: every form, lazily, safely."""

import collections
import json
import os
import pickle
import struct
import zipfile

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from triplepoint.errors import CheckpointError, UnknownNameError
from triplepoint.weights import checkpoint as checkpoint_module
from triplepoint.weights import open_checkpoint, save_tensors, steps_of

REFUSED = "asks to call {} when it is loaded; weights do not need that, so it was refused and nothing was run."


def lines_of(call, *args, error=CheckpointError, **options):
    with pytest.raises(error) as caught:
        call(*args, **options)
    return str(caught.value).split("\n")


def save_index(folder, weight_map, name="model.safetensors.index.json"):
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.fixture
def state():
    return {"a.weight": torch.randn(4, 3), "a.bias": torch.randn(4), "step": torch.tensor(7)}


def same(checkpoint, state):
    assert set(checkpoint.entries) == set(state)
    for name, tensor in state.items():
        assert checkpoint.entries[name].shape == tuple(tensor.shape)
        assert checkpoint.entries[name].nbytes == tensor.numel() * tensor.dtype.itemsize
        assert torch.equal(checkpoint.read(name), tensor)


# --- the forms


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt", ".weights"])
def test_a_torch_file_is_told_by_its_content(tmp_path, state, suffix):
    torch.save(state, tmp_path / f"w{suffix}")
    same(open_checkpoint(tmp_path / f"w{suffix}"), state)


@pytest.mark.parametrize("length", range(100, 1500, 50))
def test_a_safetensors_file_is_told_from_a_pickle_whatever_the_length_of_its_header(
    tmp_path, length
):
    # a header of 128 to 1408 bytes begins like a pickle of protocol 0 to 5
    save_file({"a": torch.ones(2)}, tmp_path / "w", metadata={"x": "x" * length})
    assert open_checkpoint(tmp_path / "w").read("a").tolist() == [1, 1]


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model", "module"])
def test_weights_beside_an_optimiser_are_found_and_the_rest_is_named(tmp_path, state, key):
    torch.save({key: state, "optimizer": {"lr": 0.1}, "epoch": 3}, tmp_path / "w.pt")
    checkpoint = open_checkpoint(tmp_path / "w.pt")
    same(checkpoint, state)
    assert checkpoint.left_out == ("optimizer", "epoch")


@pytest.mark.parametrize("key", ["net", "model"])
def test_moments_of_an_optimiser_are_no_weights_wherever_it_lies(tmp_path, key):
    model = nn.Linear(3, 4)
    optimiser = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimiser.step()
    saved = {key: model.state_dict(), "step": torch.tensor(1), "opts": [optimiser.state_dict()]}
    torch.save(saved, tmp_path / "w.pt")
    checkpoint = open_checkpoint(tmp_path / "w.pt")
    assert list(checkpoint.entries) == [f"{key}.weight", f"{key}.bias", "step"]
    assert checkpoint.left_out == ("opts",)
    torch.save(optimiser.state_dict(), tmp_path / "o.pt")
    problem, _ = lines_of(open_checkpoint, tmp_path / "o.pt")
    assert problem.endswith("o.pt holds no tensors (it holds an optimiser's state).")


def test_every_tensor_has_a_name_of_its_own_however_it_is_nested(tmp_path):
    one, two, three, four = (torch.full((2,), float(i)) for i in range(1, 5))
    torch.save({"a": {"b": one}, "a.b": two, "c": [three, (four, "x")]}, tmp_path / "w.pt")
    checkpoint = open_checkpoint(tmp_path / "w.pt")
    found = {name: checkpoint.read(name).tolist() for name in checkpoint.entries}
    assert found == {"a.b": [1, 1], "a.b#2": [2, 2], "c.0": [3, 3], "c.1.0": [4, 4]}
    assert checkpoint.left_out == ("c.1.1",)


def test_a_tensor_alone_is_a_checkpoint(tmp_path):
    torch.save(torch.ones(2, 3), tmp_path / "w.pt")
    same(open_checkpoint(tmp_path / "w.pt"), {"tensor": torch.ones(2, 3)})


def test_names_are_shown_in_characters_that_a_terminal_and_a_file_can_take(tmp_path):
    state = {"\x1b[31mred": torch.ones(1), "half\ud800": torch.ones(2), "λ b": torch.ones(3)}
    torch.save(state, tmp_path / "w.pt")
    checkpoint = open_checkpoint(tmp_path / "w.pt")
    assert list(checkpoint.entries) == ["\\x1b[31mred", "half\\ud800", "λ b"]
    assert checkpoint.read("half\\ud800").tolist() == [1, 1]


def test_a_path_that_the_system_refuses_is_told(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / ("x" * 3000), tmp_path / "loop"):
        problem, remedy = lines_of(open_checkpoint, path)
        assert problem.startswith(f"{path} cannot be read (")
        assert remedy == "Check the path and its permissions."
        assert steps_of(path) == {}


def test_a_model_that_has_a_part_called_model_is_not_taken_apart(tmp_path):
    torch.save(
        {"model": {"w": torch.ones(2)}, "head": torch.ones(3), "note": "x"}, tmp_path / "w.pt"
    )
    checkpoint = open_checkpoint(tmp_path / "w.pt")
    assert list(checkpoint.entries) == ["model.w", "head"]
    assert checkpoint.left_out == ("note",)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_what_wrappers_put_before_every_name_is_taken_off(tmp_path, state, prefix):
    torch.save({prefix + name: t for name, t in state.items()}, tmp_path / "w.pt")
    same(open_checkpoint(tmp_path / "w.pt"), state)


def test_a_prefix_of_some_names_stays(tmp_path):
    torch.save({"module.a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "w.pt")
    assert list(open_checkpoint(tmp_path / "w.pt").entries) == ["module.a", "b"]


@pytest.mark.parametrize(
    ("index", "write"),
    [("model.safetensors.index.json", save_file), ("pytorch_model.bin.index.json", torch.save)],
    ids=["safetensors", "bin"],
)
def test_a_sharded_folder_is_one_checkpoint(tmp_path, state, index, write):
    first, second = (
        {"a.weight": state["a.weight"]},
        {"a.bias": state["a.bias"], "step": state["step"]},
    )
    write(first, tmp_path / "one")
    write(second, tmp_path / "two")
    save_index(tmp_path, {"a.weight": "one", "a.bias": "two", "step": "two"}, index)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    checkpoint = open_checkpoint(tmp_path)
    same(checkpoint, state)
    assert {n: e.file.name for n, e in checkpoint.entries.items()} == {
        "a.weight": "one", "a.bias": "two", "step": "two",
    }  # fmt: skip
    assert checkpoint.config == {"model_type": "gpt2"}


@pytest.mark.parametrize("name", ["model.safetensors", "adapter_model.safetensors"])
def test_a_folder_with_one_file_is_that_file(tmp_path, state, name):
    save_file(state, tmp_path / name)
    torch.save({"lr": torch.ones(1)}, tmp_path / "optimizer.pt")
    checkpoint = open_checkpoint(tmp_path)
    assert set(checkpoint.entries) == set(state)
    assert checkpoint.path == tmp_path


@pytest.mark.parametrize(
    "layout", ["checkpoints/step-{:06d}", "checkpoint-{}"], ids=["ours", "Trainer"]
)
def test_a_run_folder_gives_its_last_step_or_the_one_asked_for(tmp_path, layout):
    for step in (9, 10, 100):
        folder = tmp_path / layout.format(step)
        folder.mkdir(parents=True)
        save_tensors(folder / "model.safetensors", {"w": torch.tensor([float(step)])})
        save_tensors(folder / "optimizer.safetensors", {"w|exp_avg": torch.zeros(1)})
    assert list(steps_of(tmp_path)) == [9, 10, 100]
    assert open_checkpoint(tmp_path).read("w").item() == 100
    assert open_checkpoint(tmp_path, step=9).read("w").item() == 9
    assert lines_of(open_checkpoint, tmp_path, step=11) == [
        f"{tmp_path} has no checkpoint of step 11.", "It has: 9, 10, 100.",
    ]  # fmt: skip


def test_a_run_folder_without_steps_gives_its_best_weights(tmp_path):
    folder = tmp_path / "checkpoints" / "best"
    folder.mkdir(parents=True)
    save_tensors(folder / "model.safetensors", {"w": torch.ones(1)})
    assert open_checkpoint(tmp_path).read("w").item() == 1


def test_a_folder_that_is_no_run_has_no_steps(tmp_path):
    assert steps_of(tmp_path) == {} == steps_of(tmp_path / "none")


def test_layer_two_comes_before_layer_ten(tmp_path):
    names = ["h.0.w", "h.2.w", "h.10.a", "h.10.w"]
    save_file({name: torch.ones(1) for name in reversed(names)}, tmp_path / "w")
    assert list(open_checkpoint(tmp_path / "w").entries) == names


# --- types


@pytest.mark.parametrize("write", [save_file, torch.save], ids=["safetensors", "torch"])
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str
)
def test_narrow_floats_become_float32_exactly(tmp_path, write, dtype):
    # 1.75, -0.375 and 24 have at most three significant bits: every one of these types holds them
    write({"w": torch.tensor([[1.75, -0.375, 24.0]]).to(dtype)}, tmp_path / "w")
    checkpoint = open_checkpoint(tmp_path / "w")
    read = checkpoint.read("w")
    assert (read.dtype, read.tolist()) == (torch.float32, [[1.75, -0.375, 24.0]])
    assert f"torch.{checkpoint.entries['w'].dtype}" == str(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.uint8, torch.bool], ids=str)
def test_other_types_come_as_they_are(tmp_path, dtype):
    save_file({"w": torch.ones(2, dtype=dtype)}, tmp_path / "w")
    assert open_checkpoint(tmp_path / "w").read("w").dtype == dtype


@pytest.mark.parametrize("name", ["w_scale", "w_scale_inv"])
@pytest.mark.parametrize(
    ("scale", "expected"),
    [([2.0], [[2.0, 2.0], [2.0, 2.0]]), ([[2.0], [8.0]], [[2.0, 2.0], [8.0, 8.0]]), ([2.0, 8.0], [[2.0, 2.0], [8.0, 8.0]])],
    ids=["one", "a row", "a row, flat"],
)  # fmt: skip
def test_an_8_bit_float_is_multiplied_by_its_scale(tmp_path, name, scale, expected):
    save_file(
        {"w": torch.ones(2, 2).to(torch.float8_e4m3fn), name: torch.tensor(scale)}, tmp_path / "w"
    )
    checkpoint = open_checkpoint(tmp_path / "w")
    assert checkpoint.read("w").tolist() == expected
    assert checkpoint.entries[name].part_of == "w"


def test_scales_of_blocks_reach_the_last_incomplete_block(tmp_path):
    blocks = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    ones = torch.ones(130, 300).to(torch.float8_e4m3fn)
    save_file({"w": ones, "w_scale_inv": blocks}, tmp_path / "w")
    read = open_checkpoint(tmp_path / "w").read("w")
    assert read[127, [0, 127, 128, 255, 256, 299]].tolist() == [1, 1, 2, 2, 3, 3]
    assert read[128, [0, 127, 128, 255, 256, 299]].tolist() == [4, 4, 5, 5, 6, 6]


def test_a_scale_of_an_unknown_kind_is_refused(tmp_path):
    ones = torch.ones(4, 6).to(torch.float8_e4m3fn)
    save_file({"w": ones, "w_scale": torch.ones(2, 3)}, tmp_path / "w")
    assert open_checkpoint(tmp_path / "w").entries["w"].unreadable == (
        "an 8-bit float whose scale of shape [2, 3] is of an unknown kind"
    )


PACKED = {
    "bitsandbytes NF4, 4 bits": {
        "l.weight": torch.zeros(8, 1, dtype=torch.uint8), "l.weight.absmax": torch.ones(1),
        "l.weight.quant_map": torch.ones(16),
        "l.weight.quant_state.bitsandbytes__nf4": torch.zeros(9, dtype=torch.uint8),
    },
    "bitsandbytes LLM.int8": {"l.weight": torch.zeros(4, 4, dtype=torch.int8), "l.SCB": torch.ones(4)},
    "GPTQ": {
        "l.qweight": torch.zeros(1, 8, dtype=torch.int32), "l.qzeros": torch.zeros(1, 1, dtype=torch.int32),
        "l.scales": torch.ones(1, 8).half(), "l.g_idx": torch.zeros(8, dtype=torch.int32),
    },
    "AWQ or GPTQ": {
        "l.qweight": torch.zeros(8, 1, dtype=torch.int32), "l.qzeros": torch.zeros(1, 1, dtype=torch.int32),
        "l.scales": torch.ones(1, 8).half(),
    },
    "compressed-tensors": {
        "l.weight_packed": torch.zeros(4, 1, dtype=torch.int32), "l.weight_scale": torch.ones(4, 1),
        "l.weight_shape": torch.tensor([4, 8]),
    },
    "MXFP4, 4 bits": {"e_blocks": torch.zeros(2, 4, 16, dtype=torch.uint8), "e_scales": torch.zeros(2, 4, dtype=torch.uint8)},
}  # fmt: skip


@pytest.mark.parametrize("told", PACKED)
def test_packed_weights_are_refused_by_the_name_of_their_format(tmp_path, told):
    save_file(PACKED[told] | {"plain.weight": torch.ones(2, 2)}, tmp_path / "w")
    checkpoint = open_checkpoint(tmp_path / "w")
    main = next(iter(PACKED[told]))
    assert checkpoint.entries[main].unreadable == f"packed as {told}"
    beside = {e.name for e in checkpoint.entries.values() if e.part_of == main}
    assert beside == set(PACKED[told]) - {main}
    assert checkpoint.entries["plain.weight"].unreadable is None
    assert lines_of(checkpoint.read, main) == [
        f"{main} in {tmp_path / 'w'} is packed as {told}, which is not read here.",
        "Save the model in bfloat16 with the library that packed it, and give that checkpoint.",
    ]


# --- ties


def test_tensors_that_share_memory_are_one_in_a_torch_file(tmp_path):
    table = nn.Parameter(torch.randn(5, 3))
    rows = table.detach()[:2]
    torch.save({"wte.weight": table, "lm_head.weight": table, "rows": rows}, tmp_path / "w.pt")
    checkpoint = open_checkpoint(tmp_path / "w.pt")
    assert {n: e.tied_to for n, e in checkpoint.entries.items()} == {
        "wte.weight": None, "lm_head.weight": "wte.weight", "rows": None,
    }  # fmt: skip
    assert torch.equal(checkpoint.read("lm_head.weight"), table)


def test_ties_of_our_own_files_are_read_from_their_table(tmp_path):
    table = torch.randn(5, 3)
    save_tensors(tmp_path / "w", {"a": table, "b": table})
    checkpoint = open_checkpoint(tmp_path / "w")
    assert checkpoint.entries["b"].tied_to == "a"
    assert torch.equal(checkpoint.read("b"), table)


@pytest.mark.parametrize(("rows", "tied"), [(3, True), (1500, True), (1500, False)])
def test_a_head_stored_beside_its_table_is_one_if_equal_bit_for_bit(tmp_path, rows, tied):
    table = torch.randn(rows, 2)
    head = table.clone()
    head[-1] += 0 if tied else 1
    other = table.clone()
    save_file({"lm_head.weight": head, "wte.weight": table, "other": other}, tmp_path / "w")
    entries = open_checkpoint(tmp_path / "w").entries
    assert entries["lm_head.weight"].tied_to == ("wte.weight" if tied else None)
    assert entries["other"].tied_to is None


def test_a_head_in_another_shard_than_its_table_is_found_too(tmp_path):
    table = torch.randn(5, 3)
    save_file({"module.wte.weight": table}, tmp_path / "one")
    save_file({"module.lm_head.weight": table.clone()}, tmp_path / "two")
    save_index(tmp_path, {"module.wte.weight": "one", "module.lm_head.weight": "two"})
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.entries["lm_head.weight"].tied_to == "wte.weight"
    assert torch.equal(checkpoint.read("lm_head.weight"), table)


def test_a_name_listed_twice_is_not_read_beyond_its_numbers(tmp_path):
    # JSON allows it; which of the two the library checked is its own affair
    small = '{"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}'
    large = '{"dtype": "F32", "shape": [1000000], "data_offsets": [0, 8]}'
    for first, second in ((small, large), (large, small)):
        header = f'{{"w": {first}, "w": {second}}}'.encode()
        (tmp_path / "w").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
        try:
            checkpoint = open_checkpoint(tmp_path / "w")
        except CheckpointError:
            continue
        assert checkpoint.entries["w"].unreadable or checkpoint.read("w").tolist() == [0, 0]


def test_a_name_with_more_digits_than_an_integer_may_have_is_a_name(tmp_path):
    save_file({"w" + "1" * 5000: torch.ones(1), "w2": torch.ones(1)}, tmp_path / "w")
    assert [len(name) for name in open_checkpoint(tmp_path / "w").entries] == [2, 5001]


# --- lazily


def test_a_tensor_larger_than_memory_is_refused_before_it_is_read(tmp_path):
    # a sparse file: the header is honest, and 2**41 bytes are there without taking a block of the disk
    elements = 2**40
    header = json.dumps(
        {"w": {"dtype": "F16", "shape": [2**20, 2**20], "data_offsets": [0, 2 * elements]}}
    ).encode()
    try:
        with (tmp_path / "w").open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + 2 * elements)
    except OSError:
        pytest.skip("the file system has no files of 2 TiB")
    problem, remedy = lines_of(lambda: open_checkpoint(tmp_path / "w").read("w"))
    assert "needs 4096.0 GiB, more than the" in problem or "cannot be read" in problem
    assert remedy


def test_the_limit_is_the_float32_copy(tmp_path, monkeypatch):
    save_file({"w": torch.ones(10, 10).half(), "v": torch.ones(10)}, tmp_path / "w")
    monkeypatch.setattr(checkpoint_module, "physical_memory", lambda: 399)
    checkpoint = open_checkpoint(tmp_path / "w")
    assert checkpoint.read("v").shape == (10,)
    problem, remedy = lines_of(checkpoint.read, "w")
    assert problem.startswith(f"w in {tmp_path / 'w'} needs 0.0 GiB, more than the 0.0 GiB of this")
    assert remedy == "Use a larger machine, or check that the file is what it should be."


def test_an_unknown_tensor_is_named_with_the_nearest(tmp_path):
    save_file({"wte.weight": torch.ones(1)}, tmp_path / "w")
    first, second = lines_of(
        open_checkpoint(tmp_path / "w").read, "wte.wieght", error=UnknownNameError
    )
    assert first == "There is no tensor 'wte.wieght'."
    assert second.startswith("Did you mean 'wte.weight'?")


# --- hostile


class Call:
    def __init__(self, call, *arguments):
        self.reduced = (call, arguments)

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize(
    ("call", "told"),
    [((os.mkdir, "made"), "posix.mkdir"), ((os.system, "touch made"), "posix.system"),
     ((eval, "1"), "__builtin__.eval"), ((bytearray, 2**33), "__builtin__.bytearray")],
    ids=["mkdir", "system", "eval", "bytearray"],
)  # fmt: skip
@pytest.mark.parametrize("form", ["archive", "nested", "pickle"])
def test_a_pickle_that_calls_is_refused_and_not_run(tmp_path, monkeypatch, call, told, form):
    monkeypatch.chdir(tmp_path)
    value = {"w": torch.ones(2), "x": [Call(*call)]} if form == "nested" else Call(*call)
    if form == "pickle":
        (tmp_path / "w.pt").write_bytes(pickle.dumps(value, protocol=2))
    else:
        torch.save(value, tmp_path / "w.pt")
    problem, remedy = lines_of(open_checkpoint, tmp_path / "w.pt")
    assert problem == f"{tmp_path / 'w.pt'} {REFUSED.format(told)}"
    assert remedy.startswith(
        "If you trust its author, load it with torch.load(path, weights_only=False) on a"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["w.pt"]


def test_what_a_user_declared_safe_to_torch_is_not_safe_here(tmp_path):
    torch.save({"w": torch.ones(1), "x": collections.UserDict()}, tmp_path / "w.pt")
    with torch.serialization.safe_globals([collections.UserDict]):
        problem, _ = lines_of(open_checkpoint, tmp_path / "w.pt")
    assert "asks to call " in problem and "UserDict when it is loaded" in problem


def test_a_view_of_more_elements_than_the_file_has_is_not_read(tmp_path):
    torch.save({"w": torch.ones(1).expand(2**20, 2**20), "v": torch.ones(2)}, tmp_path / "w.pt")
    checkpoint = open_checkpoint(tmp_path / "w.pt")
    assert checkpoint.entries["w"].unreadable == f"a view of {2**40} elements into 4 bytes"
    assert checkpoint.read("v").tolist() == [1, 1]


def test_an_archive_that_unpacks_to_more_is_refused(tmp_path):
    torch.save({"w": torch.ones(1)}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt", "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("w/data/9", bytes(2**20))
    problem, _ = lines_of(open_checkpoint, tmp_path / "w.pt")
    assert problem.endswith("(it unpacks to more than its size, which torch never writes).")


def test_a_listing_out_of_proportion_to_its_file_is_refused_unread(tmp_path):
    # 40,000 empty tensors: 2.5 MB of header that would be 50 MB of Python objects
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"t{i}": empty for i in range(40_000)}).encode()
    (tmp_path / "w").write_bytes(struct.pack("<Q", len(header)) + header)
    torch.save([[] for _ in range(300_000)], tmp_path / "w.pt")
    save_index(tmp_path, {f"t{i}": "w" for i in range(90_000)})
    for path, told in [
        (tmp_path / "w", f"its header of {len(header)} bytes lists more than the file can hold"),
        (tmp_path / "w.pt", "its data.pkl lists more than the file can hold"),
    ]:
        assert lines_of(open_checkpoint, path)[0].endswith(f"({told}).")
    problem, _ = lines_of(open_checkpoint, tmp_path)
    assert "model.safetensors.index.json cannot be read (its " in problem
    assert problem.endswith("bytes are more than the folder can hold).")


@pytest.mark.parametrize("name", ["../w", "/etc/passwd", "inner/w", "..", ""])
def test_an_index_reaches_no_file_outside_its_folder(tmp_path, name):
    save_file({"w": torch.ones(1)}, tmp_path / "w")
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    save_index(folder, {"w": name})
    problem, _ = lines_of(open_checkpoint, folder)
    outside = (
        f"{folder / 'model.safetensors.index.json'} names a file outside its folder: {name!r}."
    )
    # "" and ".." are names of folders: no file of weights either
    assert problem == outside or problem.endswith(f"names {name}, which is not there.")


# --- other things


@pytest.mark.parametrize(
    ("content", "problem", "remedy"),
    [
        (b"GGUF\3\0\0\0" + bytes(60), "is a GGUF file (llama.cpp).", "Convert it to safetensors with the tool"),
        (b"\x89HDF\r\n", "is an HDF5 file (Keras).", "Convert it to safetensors with the tool"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer: the weights themselves were not downloaded.", "Run `git lfs pull`"),
        (pickle.dumps([1.0]), "is a plain pickle, not weights that torch.save wrote.", "Save the weights as safetensors"),
        (b"", "cannot be read as safetensors (", "It is cut, damaged or another kind of file"),
        (b"PK\3\4" + bytes(99), "cannot be read as a torch file (File is not a zip file).", "It is cut"),
    ],
    ids=["gguf", "hdf5", "lfs", "pickle", "empty", "zip"],
)  # fmt: skip
def test_another_kind_of_file_is_named(tmp_path, content, problem, remedy):
    (tmp_path / "w").write_bytes(content)
    first, second = lines_of(open_checkpoint, tmp_path / "w")
    assert first.startswith(f"{tmp_path / 'w'} {problem}")
    assert second.startswith(remedy)


def test_the_format_before_torch_1_6_is_named_with_what_to_do(tmp_path):
    torch.save({"w": torch.ones(1)}, tmp_path / "w", _use_new_zipfile_serialization=False)
    assert lines_of(open_checkpoint, tmp_path / "w") == [
        f"{tmp_path / 'w'} is in torch's format before 1.6, which cannot be mapped.",
        "Save it again with a newer torch: torch.save(torch.load(path, weights_only=True), path).",
    ]


def test_a_scripted_model_is_named(tmp_path):
    torch.save({"w": torch.ones(1)}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt", "a") as file:
        file.writestr("w/constants.pkl", b"\x80\x02).")
    problem, _ = lines_of(open_checkpoint, tmp_path / "w.pt")
    assert problem.endswith("is a TorchScript program, not weights: reading it would run it.")


def test_a_file_without_tensors_is_named(tmp_path):
    torch.save({"lr": 0.1}, tmp_path / "w.pt")
    assert lines_of(open_checkpoint, tmp_path / "w.pt") == [
        f"{tmp_path / 'w.pt'} holds no tensors (it holds a dict).",
        "Save the weights with torch.save(model.state_dict(), path).",
    ]


def test_a_missing_path_says_what_is_there(tmp_path):
    (tmp_path / "model.pt").touch()
    assert lines_of(open_checkpoint, tmp_path / "modl.pt") == [
        f"There is no file or folder {tmp_path / 'modl.pt'}.", f"In {tmp_path} there is: model.pt.",
    ]  # fmt: skip


def test_a_folder_without_weights_names_the_one_below_that_has_some(tmp_path):
    (tmp_path / "a").mkdir()
    assert lines_of(open_checkpoint, tmp_path)[0] == f"{tmp_path} holds no weights (it holds a)."
    save_file({"w": torch.ones(1)}, tmp_path / "a" / "model.safetensors")
    assert lines_of(open_checkpoint, tmp_path)[1] == f"Did you mean {tmp_path / 'a'}?"


def test_several_files_without_an_index_are_named(tmp_path):
    for name in ("b.safetensors", "a.safetensors"):
        save_file({"w": torch.ones(1)}, tmp_path / name)
    assert lines_of(open_checkpoint, tmp_path) == [
        f"{tmp_path} holds 2 files of weights and no index: a.safetensors, b.safetensors.",
        "Give the path of one of them.",
    ]


def test_a_missing_shard_is_named(tmp_path):
    save_index(tmp_path, {"w": "model-00002.safetensors"})
    problem, remedy = lines_of(open_checkpoint, tmp_path)
    assert problem.endswith("names model-00002.safetensors, which is not there.")
    assert remedy == "Download the missing shard."
