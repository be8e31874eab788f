"""The five laws, and the two functions that check them on a model."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from triplepoint.errors import ModelError, unknown_name
from triplepoint.invariance.changes import CONTRASTS, EXACT, Bases, bases_of
from triplepoint.invariance.contrasts import Case, Subject, prefix_of
from triplepoint.invariance.locating import first_violation
from triplepoint.invariance.reports import CheckReport
from triplepoint.invariance.samples import Sample, sample_for

ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12}
"""Share of the output's standard deviation up to which a change is rounding."""
SHRUNK = 1e-6
"""Share of a change in float32 that is left of it in float64 at the most, if it was rounding."""

LAWS = tuple(CONTRASTS)
"""Names of the laws."""


def check_causality(model: nn.Module, inputs: Any = None) -> CheckReport:
    """Check that no output depends on later positions of the input.

    Positions from a cut on are changed, the shape stays: the outputs before the cut must not change at all,
    since nothing that they are computed from has changed. Cuts in the middle and at both ends, in eval mode; in
    the middle in training mode, with dropout off. The model is left as it was.

    A decoder whose outputs leak reports losses that it can't reach when it generates. An encoder sees the future
    on purpose, and fails. A mixture of experts that gathers an expert's tokens into one product may fail by
    rounding, since that product's shape depends on all tokens: look at ``max_change``.

    Args:
        model: Any module that returns something for every position: a tensor, or an output with ``logits``.
        inputs: A tensor ``[batch, seq]`` of ids or ``[batch, seq, dim]`` of numbers, a tuple of arguments that
            begins with it, or a mapping of keywords with ``input_ids``. By default ids of the first
            ``nn.Embedding``, 3 rows of 29 positions.

    Returns:
        ``ok``, ``max_change`` (0 for a causal model) and ``first_violation``, the path of the innermost module
        whose inputs before the cut are unchanged and whose output is not.

    Raises:
        ModelError: If the model can't be called on the inputs, or they or the output have no positions.

    Example:
        >>> model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5))
        >>> check_causality(model).ok  # each token by itself
        True
    """
    subject, sample = _prepared(model, inputs)
    bases = bases_of(sample)
    reason = _without_positions(sample, subject.output(bases[False]))
    if reason is not None:
        raise ModelError(
            f"{reason}.\nPass inputs= [batch, seq, ...] on which the model returns every position's logits, "
            "e.g. (tokens, targets)."
        )
    return _judged("causality", subject, sample, bases)


def check(
    model: nn.Module, inputs: Any = None, *, laws: Iterable[str] = LAWS
) -> dict[str, CheckReport]:
    """Check the laws that a model of sequences should obey.

    ===============  =====================================================  =======================================
    law              what is done                                           what the output may change by
    ===============  =====================================================  =======================================
    ``causality``    see :func:`check_causality`                            nothing
    ``length``       later positions are left out                           rounding
    ``batch``        a row is passed by itself; other rows are changed      rounding
    ``determinism``  the same call, from another random state               nothing
    ``train_eval``   training mode with dropout off, against eval mode      rounding
    ===============  =====================================================  =======================================

    Rounding is 1e-5 of the output's standard deviation in float32 and 1e-12 in float64. A model that exceeds the
    former is judged on a float64 copy, where at least 1e-6 of the change must be left: sharp weights amplify rounding
    (the more so without norms) by as much as a small leak would change. A model in half precision is checked on a float32 copy. ``batch`` is checked in both modes, since it is in training mode that
    a BatchNorm mixes rows.

    Args:
        model: Any module; left as it was.
        inputs: As in :func:`check_causality`; a model of images is checked on images, as far as laws apply.
        laws: Which laws.

    Returns:
        Law -> report.

    Raises:
        ModelError: If the model can't be called on the inputs.
        UnknownNameError: If there is no such law.

    Example:
        >>> model = nn.Sequential(nn.Embedding(5, 4), nn.Dropout(0.5), nn.Linear(4, 5))
        >>> [law for law, report in check(model).items() if not report.ok]
        []
    """
    laws = list(laws)
    for law in laws:
        if law not in LAWS:
            raise unknown_name("law", law, LAWS)
    subject, sample = _prepared(model, inputs)
    sample = sample.widened()
    if any(p.is_floating_point() and p.itemsize < 4 for p in model.parameters()):
        subject, sample = _cast(subject, sample, torch.float32)
        note = "on a float32 copy"
    else:
        note = ""
    bases = bases_of(sample)
    reason = _without_positions(sample, subject.output(bases[False]))
    reports = {}
    for law in laws:
        if reason is not None and law in ("causality", "length"):
            reports[law] = CheckReport(law=law, ok=None, note=reason)
            continue
        try:
            report = _judged(law, subject, sample, bases, note=note)
            reports[law] = _beyond_rounding(report, subject, sample)
        except ModelError as error:
            # on the inputs as they are the model can be called: this law asks for a call that it refuses
            reports[law] = CheckReport(law=law, ok=None, note=str(error).splitlines()[0])
    return reports


def _cast(subject: Subject, sample: Sample, dtype: torch.dtype) -> tuple[Subject, Sample]:
    return Subject(copy.deepcopy(subject.model).to(dtype)), sample.to(dtype)


def _beyond_rounding(report: CheckReport, subject: Subject, sample: Sample) -> CheckReport:
    """Judge a law that float32 says is broken on a float64 copy, which tells a leak from amplified rounding."""
    single = subject.output_dtype == torch.float32
    if report.ok is not False or report.law in EXACT or not single:
        return report
    double, wide = _cast(subject, sample, torch.float64)
    # a leak is as large in float64; rounding that the model amplifies is 2^-29 of what it was, and perhaps more
    # where it had grown as far as it can
    grown = report.max_change / report.output_std if report.output_std else 0.0
    share = max(ROUNDING[torch.float64], SHRUNK * grown)
    note = "decided on a float64 copy"
    try:
        decided = _judged(report.law, double, wide, bases_of(wide), note=note, share=share)
    except ModelError:
        return report  # something in the model insists on float32
    if not decided.ok or not report.output_std:
        return decided
    told = f"its float32 rounding grows to {grown:.2g} of the output's spread"
    return dataclasses.replace(decided, note=f"{note}: {told}")


def _prepared(model: object, inputs: Any) -> tuple[Subject, Sample]:
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"A check calls an nn.Module, got {type(model).__name__}.\nPass the model itself."
        )
    return Subject(model), sample_for(model, inputs)


def _without_positions(sample: Sample, output: Tensor) -> str | None:
    """Say why a law about positions does not apply, or None."""
    shape = list(sample.main.shape)
    if sample.seq is None:
        return f"Inputs of shape {shape} are no sequences"
    if sample.seq < 2:
        return f"Inputs of shape {shape} have no two positions"
    case = Case(inputs=None, batch=sample.batch, seq=sample.seq)
    if prefix_of(1)(output, case) is None:
        return f"The output of shape {list(output.shape)} has no axis of the inputs' {sample.seq} positions"
    return None


def _judged(
    law: str,
    subject: Subject,
    sample: Sample,
    bases: Bases,
    *,
    note: str = "",
    share: float | None = None,
) -> CheckReport:
    output = subject.output(bases[False])
    spread = output.double().std(correction=0).item()
    if share is None:
        share = 0.0 if law in EXACT else ROUNDING.get(output.dtype, ROUNDING[torch.float32])
    limit = share * spread
    contrasts = CONTRASTS[law](sample, bases)
    changes = [subject.change(contrast) for contrast in contrasts]
    broken = next((c for c, change in zip(contrasts, changes, strict=True) if change > limit), None)
    if law == "train_eval" and broken is not None and _is_random(subject, bases[True]):
        return CheckReport(law=law, ok=None, note="training mode is random besides dropout")
    return CheckReport(
        law=law,
        ok=broken is None,
        max_change=max(changes),
        limit=limit,
        output_std=spread,
        first_violation=broken and first_violation(subject, broken, share=share),
        done=(broken or contrasts[0]).words,
        note=note,
    )


def _is_random(subject: Subject, case: Case) -> bool:
    again = dataclasses.replace(case, seed=case.seed + 1)
    return not torch.equal(subject.output(case), subject.output(again))
