"""What each law changes in the inputs, and what must stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from triplepoint.invariance.contrasts import Case, Contrast, everything, first_row, prefix_of
from triplepoint.invariance.samples import Sample

Bases = dict[bool, Case]
"""Whether in training mode -> the call that nothing is changed in."""


def bases_of(sample: Sample) -> Bases:
    """Return the calls on the inputs as they are, in either mode."""
    return {
        training: Case(inputs=sample.inputs, batch=sample.batch, seq=sample.seq, training=training)
        for training in (False, True)
    }


def _in_mode(training: bool, words: str) -> str:
    return f"in training mode, {words}" if training else words


def _causality(sample: Sample, bases: Bases) -> list[Contrast]:
    last, middle = sample.seq - 1, sample.seq // 2
    # The middle finds what reaches over any distance, the ends what reaches far. In training mode a BatchNorm
    # over positions leaks that in eval mode does not.
    cuts = [*((cut, False) for cut in dict.fromkeys((middle, 1, last))), (middle, True)]
    return [
        Contrast(
            first=bases[training],
            second=dataclasses.replace(bases[training], inputs=sample.with_suffix(cut)),
            keep=prefix_of(cut),
            words=_in_mode(training, f"changing positions {cut} to {last}"),
        )
        for cut, training in cuts
    ]


def _length(sample: Sample, bases: Bases) -> list[Contrast]:
    last, middle = sample.seq - 1, sample.seq // 2
    return [
        Contrast(
            first=bases[False],
            second=dataclasses.replace(bases[False], inputs=sample.prefix(length), seq=length),
            keep=prefix_of(length),
            words=f"leaving out positions {length} to {last}",
        )
        for length in dict.fromkeys((middle, last))
    ]


def _batch(sample: Sample, bases: Bases) -> list[Contrast]:
    alone = dataclasses.replace(bases[False], inputs=sample.first_row(), batch=1)
    others = [
        (base, dataclasses.replace(base, inputs=sample.with_other_rows()))
        for base in bases.values()
    ]
    return [
        Contrast(first=bases[False], second=alone, keep=first_row, words="passing a row by itself"),
        *(
            Contrast(
                first=a,
                second=b,
                keep=first_row,
                words=_in_mode(a.training, "changing the other rows"),
            )
            for a, b in others
        ),
    ]


def _determinism(sample: Sample, bases: Bases) -> list[Contrast]:
    again = dataclasses.replace(bases[False], seed=1)
    return [Contrast(first=bases[False], second=again, keep=everything, words="calling again")]


def _train_eval(sample: Sample, bases: Bases) -> list[Contrast]:
    words = "training mode without dropout"
    return [Contrast(first=bases[False], second=bases[True], keep=everything, words=words)]


CONTRASTS: dict[str, Callable[[Sample, Bases], list[Contrast]]] = {
    "causality": _causality,
    "length": _length,
    "batch": _batch,
    "determinism": _determinism,
    "train_eval": _train_eval,
}
"""Law -> what is compared."""

EXACT = ("causality", "determinism")
"""Laws under which nothing may change at all: the same numbers are added up in the same order."""
