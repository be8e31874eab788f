"""Tests of triplepoint.data.vision and cifar: splits, batches, and CIFAR's binary form."""

import math
import pickle
import types

import numpy as np
import pytest
import torch

from triplepoint.data import ImageSet, load_images, vision
from triplepoint.errors import DataError, MissingExtraError, PlanError, UnknownNameError


def images_of(count, *, first=0, shape=(1, 2, 2), classes=4):
    """Images whose pixels are their own number, and labels in turn."""
    numbers = torch.arange(first, first + count)
    images = numbers.to(torch.uint8).view(-1, 1, 1, 1).expand(count, *shape).contiguous()
    return images, numbers % classes


def small_set(**changes):
    return ImageSet.from_tensors(
        images_of(20), images_of(6, first=20), images_of(4, first=26), classes=4, source="numbers", **changes
    )  # fmt: skip


def cifar_record(number, *, label_bytes, classes):
    """Labels, then red, green and blue: the planes differ, and so do the first two pixels."""
    labels = [number % 20, number % classes] if label_bytes == 2 else [number % classes]
    planes = [[number % 256] * 1024, [100] * 1024, [200] * 1024]
    planes[0][1] = 255
    return bytes(labels) + bytes(sum(planes, []))


def write_cifar(folder, kind, *, per_file=4):
    folder.mkdir(parents=True, exist_ok=True)
    if kind == 10:
        names, label_bytes = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"], 1
    else:
        names, label_bytes = ["train.bin", "test.bin"], 2
    number = 0
    for name in names:
        count = per_file if kind == 10 else 5 * per_file
        records = [
            cifar_record(number + i, label_bytes=label_bytes, classes=kind) for i in range(count)
        ]
        (folder / name).write_bytes(b"".join(records))
        number += count
    return folder


def lines_of(error, call):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value).split("\n")


# --- the set


def test_normalisation_is_by_the_train_images_per_channel():
    train = torch.zeros(4, 2, 1, 1, dtype=torch.uint8)
    train[:, 0, 0, 0] = torch.tensor([0, 2, 4, 6])
    train[:, 1] = 9
    labels = torch.zeros(4, dtype=torch.long)
    held = torch.full((1, 2, 1, 1), 13, dtype=torch.uint8), labels[:1]
    images = ImageSet.from_tensors((train, labels), held, held, classes=1, source="x")
    # mean 3, deviation sqrt(5); the second channel is flat: (13 - 9) / 255
    found = images.samples("validation")[0].flatten().tolist()
    assert found == pytest.approx([10 / math.sqrt(5), 4 / 255])
    x = images.samples("train")[0]
    torch.testing.assert_close(x[:, 0].mean(), torch.tensor(0.0))
    torch.testing.assert_close(x[:, 0].std(correction=0), torch.tensor(1.0))


def test_samples_are_fixed_distinct_and_of_their_split():
    images = small_set()
    x, y = images.samples("validation", count=4, seed=3)
    again = images.samples("validation", count=4, seed=3)
    assert torch.equal(x, again[0])
    assert torch.equal(y, again[1])
    assert len(x.flatten(1)[:, 0].unique()) == 4
    whole, labels = images.samples("validation")
    assert torch.equal(labels, images.validation[1])
    assert all(any(torch.equal(row, other) for other in whole) for row in x)
    assert not torch.equal(x, images.samples("validation", count=4, seed=4)[0])
    assert len(images.samples("report", count=99)[1]) == 4


def test_labels_stay_with_their_images():
    images = small_set()
    scale = images.train[0].double().std(correction=0).item()
    for x, y in (next(images.batches(1, batch=16)), images.samples("train", count=9)):
        numbers = (x[:, 0, 0, 0] * scale + 9.5).round().long()
        assert torch.equal(numbers % 4, y)


def test_batches_depend_on_seed_and_step_alone():
    images = small_set()
    stream = images.batches(0, batch=8)
    first, second, third = (next(stream) for _ in range(3))
    resumed = next(images.batches(0, batch=8, start=2))
    assert torch.equal(third[0], resumed[0])
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[0], next(images.batches(1, batch=8))[0])
    assert first[0].shape == (8, 1, 2, 2)
    assert first[0].dtype == torch.float32


def test_batches_draw_from_train_only():
    images = small_set()
    seen = torch.cat([x for x, _ in (next(images.batches(s, batch=50)) for s in range(20))])
    whole = images.samples("train")[0]
    assert len(seen.flatten(1)[:, 0].unique()) == len(whole)
    assert seen.max() == whole.max()


def test_the_plateau_is_the_labels_frequency():
    train = torch.zeros(3, 1, 1, 1, dtype=torch.uint8), torch.tensor([0, 0, 1])
    images = ImageSet.from_tensors(train, train, train, classes=2, source="two to one")
    # (2 + 1) / (3 + 2) and (1 + 1) / (3 + 2)
    expected = -(math.log(3 / 5) + math.log(2 / 5)) / 2
    assert images.prior_cross_entropy(torch.tensor([0, 1])) == pytest.approx(expected)


def test_describe_and_checksum():
    facts = small_set().describe()
    assert (facts["train_images"], facts["validation_images"], facts["report_images"]) == (20, 6, 4)
    assert (facts["classes"], facts["source"]) == (4, "numbers")
    other = ImageSet.from_tensors(
        images_of(20), images_of(6, first=21), images_of(4, first=26), classes=4, source="numbers"
    )
    assert other.sha256 != facts["sha256"] == small_set().sha256


# --- the digits


def test_the_digits_are_split_in_order(monkeypatch):
    count = 1797
    loaded = types.SimpleNamespace(
        images=np.arange(count * 64).reshape(count, 8, 8) % 17.0, target=np.arange(count) % 10
    )
    fake = types.SimpleNamespace(load_digits=lambda: loaded)
    monkeypatch.setattr(vision, "require", lambda module, *, extra: fake)
    digits = load_images()
    assert [len(digits.samples(s)[1]) for s in ("train", "validation", "report")] == [
        1297,
        250,
        250,
    ]
    assert digits.report[1].tolist() == [i % 10 for i in range(1547, 1797)]
    assert digits.train[0].shape == (1297, 1, 8, 8)
    assert (digits.brightest, digits.classes) == (16, 10)
    assert "does not compare with CIFAR" in digits.source


def test_scikit_learns_own_digits():
    pytest.importorskip("sklearn")
    digits = load_images()
    # the command: python -c "from triplepoint.data import load_images; print(load_images().sha256)"
    assert digits.sha256.startswith("0b64f280552cdbed")
    assert int(digits.train[0].max()) == 16
    assert digits.prior_cross_entropy(digits.validation[1]) == pytest.approx(math.log(10), abs=1e-3)


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    lines = lines_of(MissingExtraError, load_images)
    assert lines[0].startswith("This needs the package 'sklearn.datasets', which is not installed")
    assert lines[1] == "Install it with: pip install 'triplepoint[vision]'"


# --- CIFAR


@pytest.mark.parametrize(
    ("kind", "below"),
    [(10, ""), (100, ""), (10, "cifar-10-batches-bin"), (100, "cifar-100-binary")],
)
def test_cifar_is_read_from_its_folder_or_the_one_above(tmp_path, kind, below):
    write_cifar(tmp_path / below, kind)
    images = load_images(tmp_path)
    assert [len(images.samples(s)[1]) for s in ("train", "validation", "report")] == [
        18, 2, 4 if kind == 10 else 20,
    ]  # fmt: skip
    # records are numbered; the last tenth of train is validation, the test file report
    assert images.validation[1].tolist() == [18 % kind, 19 % kind]
    assert images.report[1][0] == 20 % kind
    x = images.train[0][5]
    assert x.shape == (3, 32, 32)
    assert x[:, 0, 0].tolist() == [5, 100, 200]
    assert x[0, 0, 1] == 255  # the second byte is the next pixel of the same row
    assert images.classes == kind
    assert images.source.startswith(f"CIFAR-{kind}, 18 train")


def test_fewer_train_images_leave_the_evaluation_alone(tmp_path):
    write_cifar(tmp_path, 10)
    few, all_of_them = load_images(tmp_path, train_images=5), load_images(tmp_path)
    assert torch.equal(few.train[0], all_of_them.train[0][:5])
    assert torch.equal(few.validation[0], all_of_them.validation[0])
    assert few.source == f"{all_of_them.source}; first 5 train images"
    assert few.sha256 != all_of_them.sha256


# --- what makes no sense


def test_pickles_are_refused_unread(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(Evil()))
    for folder in (tmp_path, tmp_path / "cifar-10-batches-py"):
        first, second = lines_of(DataError, lambda folder=folder: load_images(folder))
        assert first == (
            f"{folder} holds CIFAR's Python version: pickles, which can run code when they are read."
        )
        assert "cifar-10-binary.tar.gz" in second
    assert not (tmp_path / "ran").exists()


def test_paths_without_cifar_say_what_they_are(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    for path, said in (
        (tmp_path / "nowhere", "does not exist."),
        (tmp_path / "a.txt", "is a file, not a folder of CIFAR in binary form."),
        (tmp_path, "holds no CIFAR in binary form."),
    ):
        first, second = lines_of(DataError, lambda path=path: load_images(path))
        assert first == f"{path} {said}"
        assert second.endswith("nothing is downloaded.")


def test_a_missing_file_is_named(tmp_path):
    write_cifar(tmp_path, 10)
    (tmp_path / "data_batch_3.bin").unlink()
    assert lines_of(DataError, lambda: load_images(tmp_path)) == [
        f"{tmp_path} lacks data_batch_3.bin of CIFAR-10.",
        "Unpack the archive again.",
    ]


def test_a_cut_file_is_named(tmp_path):
    write_cifar(tmp_path, 10)
    path = tmp_path / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    assert lines_of(DataError, lambda: load_images(tmp_path)) == [
        f"{path} has {4 * 3073 - 1} bytes, no whole number of records of 3073.",
        "The file is cut or not CIFAR's; unpack the archive again.",
    ]


def test_a_label_out_of_range_is_named(tmp_path):
    write_cifar(tmp_path, 10)
    path = tmp_path / "test_batch.bin"
    path.write_bytes(b"\x0b" + path.read_bytes()[1:])
    assert lines_of(DataError, lambda: load_images(tmp_path)) == [
        f"{path} has the label 11, but CIFAR-10 has classes 0 to 9.",
        "The file is damaged or not CIFAR's; unpack the archive again.",
    ]


def test_too_few_images_for_a_validation_split_are_refused(tmp_path):
    write_cifar(tmp_path, 100, per_file=1)
    first, second = lines_of(DataError, lambda: load_images(tmp_path))
    assert (
        first
        == f"The train files of {tmp_path} hold 5 images, too few for a validation split of a tenth."
    )
    assert second == "Give at least 10."


def test_numbers_out_of_range_are_refused(tmp_path):
    write_cifar(tmp_path, 10)
    assert lines_of(DataError, lambda: load_images(tmp_path, train_images=19)) == [
        "19 train images were asked for, but the train split has 18.",
        "Ask for at most 18.",
    ]
    lines_of(PlanError, lambda: load_images(tmp_path, train_images=0))
    lines_of(PlanError, lambda: small_set().samples("train", count=0))
    lines_of(PlanError, lambda: next(small_set().batches(0, batch=0)))
    assert (
        lines_of(UnknownNameError, lambda: small_set().samples("test"))[0]
        == "There is no split 'test'."
    )


@pytest.mark.parametrize(
    ("validation", "said"),
    [
        (
            (torch.zeros(2, 1, 2, 2), torch.zeros(2).long()),
            "got torch.float32 [2, 1, 2, 2] and 2 labels.",
        ),
        ((torch.zeros(2, 1, 2, 2).byte(), torch.zeros(3).long()), "and 3 labels."),
        ((torch.zeros(2, 1, 4, 4).byte(), torch.zeros(2).long()), "[2, 1, 4, 4]"),
        ((torch.zeros(0, 1, 2, 2).byte(), torch.zeros(0).long()), "and 0 labels."),
    ],
)
def test_tensors_of_another_kind_are_refused(validation, said):
    first, second = lines_of(
        DataError,
        lambda: ImageSet.from_tensors(
            images_of(5), validation, images_of(5), classes=4, source="x"
        ),
    )
    assert first.startswith("The validation split needs uint8 images")
    assert said in first
    assert "(x * 255).byte()" in second


def test_labels_outside_the_classes_are_refused():
    assert lines_of(
        DataError,
        lambda: ImageSet.from_tensors(
            images_of(5), images_of(5), images_of(5), classes=3, source="x"
        ),
    ) == [
        "The train split's labels run from 0 to 3, outside the 3 classes.",
        "Count classes from 0, or give more of them.",
    ]
