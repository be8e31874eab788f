"""The value that training and evaluation read: three runs of tokens, and windows of them.

Axes: ``token`` along a split; ``count`` and ``batch`` over windows; ``length = context + 1``.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from triplepoint.data.tokens import (
    at_least,
    check_ids,
    count_ids,
    counted_starts,
    sha256_of,
    take_windows,
)
from triplepoint.errors import DataError, unknown_name

SPLITS = ("train", "validation", "report")
"""Names of the splits: learn from, decide by, and look at once at the end."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Tokens in three disjoint splits, with what is needed to name them again.

    Build one with :func:`triplepoint.data.load_corpus`, or from tensors at hand with
    :meth:`from_tokens`. Nothing here touches a global random state.

    Attributes:
        train: Tokens to learn from, one-dimensional, ``uint8``, ``uint16`` or ``int32``. It may be
            a memory-mapped file: index or slice it, then convert.
        validation: Tokens that decisions are based on.
        report: Tokens for the final number only; no decision looks at them.
        vocab: Number of distinct ids a token can take; all ids are in ``[0, vocab)``.
        source: One plain sentence: what the tokens are and how they were split.
        sha256: Of train, validation and report in this order, each in its stored dtype,
            little-endian. The same text as bytes and as ``int32`` ids has different sums.
        unit: What a token is, ``"byte"`` or ``"token"``; losses are nats per this unit.
        python: Version of the interpreter whose library is the text, None for other sources.
    """

    train: Tensor = dataclasses.field(repr=False)
    validation: Tensor = dataclasses.field(repr=False)
    report: Tensor = dataclasses.field(repr=False)
    vocab: int
    source: str
    sha256: str
    unit: str
    python: str | None = None

    @classmethod
    def from_tokens(
        cls,
        train: Tensor,
        validation: Tensor,
        report: Tensor,
        *,
        vocab: int,
        source: str,
        unit: str = "token",
        python: str | None = None,
    ) -> Corpus:
        """Build a corpus from three tensors of ids, summing and checking them.

        Args:
            train: One-dimensional integer tensor, ids in ``[0, vocab)``.
            validation: As ``train``.
            report: As ``train``.
            vocab: Number of ids.
            source: One plain sentence for the manifest.
            unit: ``"byte"`` or ``"token"``.
            python: Version of Python, where its library is the text.

        Raises:
            DataError: If a tensor is not a row of integers, or an id is outside the vocabulary.

        Example:
            >>> text = torch.frombuffer(bytearray(b"abracadabra"), dtype=torch.uint8)
            >>> corpus = Corpus.from_tokens(
            ...     text[:5], text[5:8], text[8:], vocab=256, source="a word", unit="byte"
            ... )
            >>> corpus.describe()["train_tokens"], corpus.sha256[:8]
            (5, '045babdc')
        """
        for name, tokens in zip(SPLITS, (train, validation, report), strict=True):
            check_ids(tokens, vocab=vocab, name=f"the {name} split")
        return cls(
            train=train,
            validation=validation,
            report=report,
            vocab=vocab,
            source=source,
            sha256=sha256_of(train, validation, report),
            unit=unit,
            python=python,
        )

    def windows(self, split: str, *, context: int, count: int = 128, seed: int = 0) -> Tensor:
        """Draw a fixed set of windows of one split, for evaluation.

        The same arguments give the same windows on every machine. They depend on the split's
        own tokens only: a shorter train split leaves the validation windows as they are.
        Windows may overlap; their starts are distinct while the split has ``count`` of them
        (see :meth:`starts`). A shorter split is sampled with replacement.

        Args:
            split: ``"train"``, ``"validation"`` or ``"report"``.
            context: Tokens a model sees, at least 1.
            count: Number of windows. 128 windows of 128 bytes are 16384 predictions: were they
                independent, with a spread of 2 nats, their mean had a standard error of 0.016.
            seed: Which set, at least 0.

        Returns:
            Ids, shape ``[count, context + 1]``, int64: inputs ``[:, :-1]``, targets ``[:, 1:]``.

        Raises:
            DataError: If the split is shorter than one window.
            PlanError: If a number is out of range.
        """
        at_least(count=(count, 1), seed=(seed, 0))
        possible = self.starts(split, context=context)
        # Python's own generator: no permutation of a billion starts, the same on all platforms
        own = random.Random(seed)
        if possible >= count:
            chosen = own.sample(range(possible), count)
        else:
            chosen = own.choices(range(possible), k=count)
        return take_windows(self._split(split), torch.tensor(chosen), context + 1)

    def batches(self, seed: int, *, batch: int, context: int, start: int = 0) -> Iterator[Tensor]:
        """Yield random windows of the train split, without end.

        The batch of step ``t`` is a function of ``(seed, t)`` alone (a counter-based generator,
        Philox), so ``start=t`` resumes exactly and at no cost. Starts are drawn uniformly with
        replacement, as in nanoGPT: this is not an epoch-wise shuffle, and after as many tokens
        as train holds, about 1/e of them have not been seen yet.

        Args:
            seed: Which stream, at least 0.
            batch: Windows per step.
            context: Tokens a model sees.
            start: Step of the first batch, counted from 0.

        Returns:
            An iterator of ids, shape ``[batch, context + 1]``, int64.

        Raises:
            DataError: If the train split is shorter than one window.
            PlanError: If a number is out of range.

        Example:
            >>> digits = torch.arange(10)
            >>> corpus = Corpus.from_tokens(digits, digits, digits, vocab=10, source="digits")
            >>> stream = corpus.batches(0, batch=2, context=3)
            >>> first, second = next(stream), next(stream)
            >>> torch.equal(second, next(corpus.batches(0, batch=2, context=3, start=1)))
            True
        """
        at_least(seed=(seed, 0), batch=(batch, 1), start=(start, 0))
        possible = self.starts("train", context=context)
        return (
            take_windows(self.train, counted_starts(seed, step, batch, possible), context + 1)
            for step in itertools.count(start)
        )

    def starts(self, split: str, *, context: int) -> int:
        """Count the distinct windows of a split: its tokens minus ``context``, at least 1.

        Raises:
            DataError: If the split is shorter than one window.
            PlanError: If ``context`` is below 1.
        """
        at_least(context=(context, 1))
        tokens = self._split(split).numel()
        if tokens <= context:
            raise DataError(
                f"The {split} split has {tokens} {self.unit}s; a window of context {context} "
                f"needs {context + 1}.\n"
                "Give a longer text or a smaller context."
            )
        return tokens - context

    def unigram_cross_entropy(self, windows: Tensor) -> float:
        r"""Cross-entropy of the train text's token frequencies: the first plateau of training.

        A model reaches it when it knows how often each token occurs, and nothing about order:

        .. math::
            -\frac{1}{|T|}\sum_{t \in T} \ln \frac{n_t + 1}{N + V}

        over the predicted tokens ``T = windows[:, 1:]``, with :math:`n_t` the count of ``t`` in
        the train split of :math:`N` tokens and :math:`V` the vocabulary. The added one keeps a
        token absent from train finite; where ``N`` is not much larger than ``V`` it pulls
        the value towards ``ln V``. It is not the entropy of the train text, which scores train
        by itself. Counts are taken once, in chunks, and kept.

        Args:
            windows: Ids, shape ``[count, context + 1]``, as from :meth:`windows`.

        Returns:
            Nats per token, above 0.

        Raises:
            DataError: If ``windows`` is not such a matrix, or has ids outside the vocabulary.

        Example:
            >>> text = torch.tensor([0, 0, 0, 1])
            >>> corpus = Corpus.from_tokens(text, text, text, vocab=2, source="three to one")
            >>> round(corpus.unigram_cross_entropy(torch.tensor([[1, 0]])), 4)  # -ln(4/6)
            0.4055
        """
        if windows.ndim != 2 or windows.shape[0] < 1 or windows.shape[1] < 2:
            raise DataError(
                "unigram_cross_entropy needs windows [count, context + 1], got shape "
                f"{list(windows.shape)}.\n"
                'Pass what `corpus.windows("validation", context=...)` returns.'
            )
        predicted = windows[:, 1:].flatten().cpu()
        check_ids(predicted, vocab=self.vocab, name="the windows")
        return -self._log_unigram[predicted.long()].mean().item()

    def describe(self) -> dict[str, str | int]:
        """Return the facts a manifest keeps: source, checksum, unit, vocabulary and counts.

        Counts are in tokens. ``python`` is there only where the text is Python's own library.
        """
        facts = {
            "source": self.source,
            "sha256": self.sha256,
            "unit": self.unit,
            "vocab": self.vocab,
            **{f"{name}_tokens": self._split(name).numel() for name in SPLITS},
        }
        return facts if self.python is None else {**facts, "python": self.python}

    def _split(self, name: str) -> Tensor:
        if name not in SPLITS:
            raise unknown_name("split", name, SPLITS)
        return getattr(self, name)

    @functools.cached_property
    def _log_unigram(self) -> Tensor:
        counts = count_ids(self.train, vocab=self.vocab)
        return torch.log((counts + 1) / (counts.sum() + self.vocab))
