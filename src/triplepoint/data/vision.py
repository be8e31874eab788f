"""Labelled images in three splits: scikit-learn's digits, or CIFAR from a local folder.

Axes: ``sample channel height width``. Nothing is downloaded.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from triplepoint.data.cifar import read_cifar
from triplepoint.data.corpus import SPLITS
from triplepoint.data.tokens import at_least, counted_starts, sha256_of
from triplepoint.errors import DataError, unknown_name
from triplepoint.extras import require

DIGITS_HELD_OUT = 250
"""Images of the digits that validation and report have each; 250 right or wrong give an accuracy of 0.95 a standard
error of 0.014."""

Labelled = tuple[Tensor, Tensor]
"""Images ``[sample, channel, height, width]`` and their labels ``[sample]``."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """Images in three disjoint splits: learn from train, decide by validation, look at report once at the end.

    Build one with :func:`load_images`, or from tensors at hand with :meth:`from_tensors`.

    Attributes:
        train: Images to learn from, ``uint8``, and their labels, ``int64``.
        validation: Images that decisions are based on: the best checkpoint, alpha, a rate.
        report: Images for the final number only; no decision looks at them.
        classes: Number of classes; labels are in ``[0, classes)``.
        brightest: Pixel value of white: 255, or 16 for the digits.
        source: One plain sentence: what the images are and how they were split.
        sha256: Of images and labels of the three splits in this order, as stored.
    """

    train: Labelled = dataclasses.field(repr=False)
    validation: Labelled = dataclasses.field(repr=False)
    report: Labelled = dataclasses.field(repr=False)
    classes: int
    brightest: int
    source: str
    sha256: str

    @classmethod
    def from_tensors(
        cls,
        train: Labelled,
        validation: Labelled,
        report: Labelled,
        *,
        classes: int,
        source: str,
        brightest: int = 255,
    ) -> ImageSet:
        """Build a set from images and labels, summing and checking them.

        Raises:
            DataError: If a split is empty, is not ``uint8`` images with as many labels, or differs in shape.

        Example:
            >>> grey = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1), torch.tensor([0, 1, 0, 1])
            >>> ImageSet.from_tensors(grey, grey, grey, classes=2, source="greys").describe()["train_images"]
            4
        """
        for name, (images, labels) in zip(SPLITS, (train, validation, report), strict=True):
            shape = [len(labels), *train[0].shape[1:]]
            if (
                images.dtype != torch.uint8
                or images.ndim != 4
                or list(images.shape) != shape
                or not len(labels)
            ):
                raise DataError(
                    f"The {name} split needs uint8 images [sample, channel, height, width] of the train images' "
                    f"shape and as many labels, got {images.dtype} {list(images.shape)} and {len(labels)} labels.\n"
                    "Give at least one image per split, e.g. `(x * 255).byte()`."
                )
            if labels.min() < 0 or labels.max() >= classes:
                raise DataError(
                    f"The {name} split's labels run from {int(labels.min())} to {int(labels.max())}, outside the "
                    f"{classes} classes.\nCount classes from 0, or give more of them."
                )
        return cls(
            train=train, validation=validation, report=report, classes=classes, brightest=brightest,
            source=source, sha256=sha256_of(*train, *validation, *report),
        )  # fmt: skip

    def samples(self, split: str, *, count: int | None = None, seed: int = 0) -> Labelled:
        """Return a fixed part of one split for evaluation: normalised images, float32, and labels.

        Args:
            split: ``"train"``, ``"validation"`` or ``"report"``.
            count: How many, drawn without replacement in an order that depends on ``seed`` alone; None, or more
                than there are, for all in order.
            seed: Which part, at least 0.

        Raises:
            UnknownNameError: If there is no such split.
        """
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        images, labels = getattr(self, split)
        if count is None or count >= len(labels):
            return self._normalised(images), labels
        at_least(count=(count, 1), seed=(seed, 0))
        chosen = torch.tensor(random.Random(seed).sample(range(len(labels)), count))
        return self._normalised(images[chosen]), labels[chosen]

    def batches(self, seed: int, *, batch: int, start: int = 0) -> Iterator[Labelled]:
        """Yield random train images without end: normalised images, float32, and labels; not augmented.

        The batch of step ``t`` is a function of ``(seed, t)`` alone, so ``start=t`` resumes exactly. Images are
        drawn uniformly with replacement: this is no epoch-wise shuffle.

        Raises:
            PlanError: If a number is out of range.
        """
        at_least(seed=(seed, 0), batch=(batch, 1), start=(start, 0))
        images, labels = self.train
        for step in itertools.count(start):
            chosen = counted_starts(seed, step, batch, len(labels))
            yield self._normalised(images[chosen]), labels[chosen]

    def prior_cross_entropy(self, labels: Tensor) -> float:
        r"""Cross-entropy of the train labels' frequencies on ``labels``: what a model gets that sees no image.

        .. math:: -\frac{1}{|L|}\sum_{l \in L} \ln \frac{n_l + 1}{N + C}

        with :math:`n_l` of :math:`N` train images in class ``l`` of :math:`C`.

        Returns:
            Nats per image; about ``ln C`` for balanced classes.
        """
        counts = torch.bincount(self.train[1], minlength=self.classes).double() + 1
        return -(counts / counts.sum()).log()[labels].mean().item()

    def describe(self) -> dict[str, str | int]:
        """Return the facts a manifest keeps."""
        counts = {f"{name}_images": len(getattr(self, name)[1]) for name in SPLITS}
        return {"source": self.source, "sha256": self.sha256, "classes": self.classes, **counts}

    @functools.cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel of train, in steps of pixel value."""
        channels = self.train[0].transpose(0, 1).flatten(1)
        # counted by value: the pixels of CIFAR as float64 would be 1.2 GB
        counts = torch.stack([torch.bincount(c, minlength=256) for c in channels]).double()
        values = torch.arange(256, dtype=torch.float64)
        mean = counts @ values / counts.sum(dim=1)
        square = counts @ values**2 / counts.sum(dim=1)
        return mean, (square - mean**2).clamp(min=0).sqrt()

    def _normalised(self, images: Tensor) -> Tensor:
        mean, deviation = (m.float().view(-1, 1, 1) for m in self._moments)
        # a channel that is flat in train stays 0
        return (images.float() - mean) / torch.where(
            deviation > 0, deviation, float(self.brightest)
        )


def load_images(path: str | Path | None = None, *, train_images: int | None = None) -> ImageSet:
    """Load labelled images, with train, validation and report fixed once and for all.

    =======================  ==============================================================================
    ``path``                 images
    =======================  ==============================================================================
    None                     scikit-learn's digits (extra ``vision``): 1797 of 8 x 8 in 10 classes, in their
                             order (which keeps a writer's digits together) 1297 / 250 / 250
    a folder of CIFAR-10     ``data_batch_1.bin`` to ``5``: last tenth validation; ``test_batch.bin`` report
    a folder of CIFAR-100    ``train.bin``: last tenth validation; ``test.bin`` report; the 100 fine labels
    =======================  ==============================================================================

    The digits are a smoke test: what a model does on them does not compare with CIFAR. Pixels are normalised by
    the train images' mean and standard deviation per channel. There is no augmentation.

    Args:
        path: Where to read; None for the digits.
        train_images: Keep only so many images from the beginning of train.

    Raises:
        DataError: If the folder holds no CIFAR in binary form, or files are cut.
        MissingExtraError: If the digits are asked for and scikit-learn is not installed.
        PlanError: If ``train_images`` is below 1.
    """
    images = _digits() if path is None else _cifar(Path(path))
    if train_images is None:
        return images
    at_least(train_images=(train_images, 1))
    available = len(images.train[1])
    if train_images > available:
        raise DataError(
            f"{train_images} train images were asked for, but the train split has {available}.\n"
            f"Ask for at most {available}."
        )
    x, y = images.train
    return ImageSet.from_tensors(
        (x[:train_images], y[:train_images]), images.validation, images.report, classes=images.classes,
        brightest=images.brightest, source=f"{images.source}; first {train_images} train images",
    )  # fmt: skip


def _digits() -> ImageSet:
    loaded = require("sklearn.datasets", extra="vision").load_digits()
    images = torch.from_numpy(loaded.images.astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(loaded.target.astype(np.int64))
    held = DIGITS_HELD_OUT
    sizes = (len(labels) - 2 * held, held, held)
    parts = zip(images.split(sizes), labels.split(sizes), strict=True)
    return ImageSet.from_tensors(
        *parts, classes=10, brightest=16,
        source=f"scikit-learn's digits, {len(labels)} images of 8 x 8 in 10 classes (does not compare with CIFAR); "
        f"first {sizes[0]} train, next {held} validation, last {held} report",
    )  # fmt: skip


def _cifar(folder: Path) -> ImageSet:
    (images, labels), report, classes = read_cifar(folder)
    held = len(labels) // 10
    if not held:
        raise DataError(
            f"The train files of {folder} hold {len(labels)} images, too few for a validation split of a tenth.\n"
            "Give at least 10."
        )
    sizes = (len(labels) - held, held)
    train, validation = zip(images.split(sizes), labels.split(sizes), strict=True)
    return ImageSet.from_tensors(
        train, validation, report, classes=classes,
        source=f"CIFAR-{classes}, {sizes[0]} train; validation is the last tenth of its train images, report its "
        f"{len(report[1])} test images",
    )  # fmt: skip
