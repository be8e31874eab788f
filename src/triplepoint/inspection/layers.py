"""One matrix measured: its tail with interval and null, its ranks and norms, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from triplepoint.inspection.definitions import WEIGHT_METRICS
from triplepoint.inspection.matrices import Matrix
from triplepoint.inspection.results import Density, Layer
from triplepoint.metrics.heavy_tail import log_norms, weighted_tail_exponent
from triplepoint.metrics.power_law import PowerLawFit, fit_power_law
from triplepoint.metrics.random_matrices import marchenko_pastur, shuffle_in_place
from triplepoint.metrics.rank import ranks_of
from triplepoint.metrics.spectrum import Spectrum, spectrum_of
from triplepoint.metrics.tail_null import NullComparison, compare_with_null

BINS = 100
"""Of the histograms: a bin is wider than a pixel, and narrower than what a reader tells apart."""
_LOWEST = 1e-10
"""Eigenvalues up to this share of the largest are below float32's resolution of singular values, 1e-5 squared."""
_OF_FIT = {"tail_exponent", "tail_xmin", "tail_ks", "tail_size", "weighted_tail_exponent"}
_OF_NULL = {"null_tail_exponent", "heavy_tailed"}


def measure_matrix(
    matrix: Matrix,
    tensor: Tensor,
    wanted: set[str],
    *,
    null: bool,
    bootstrap: int,
    seed: int,
    name: str,
) -> Layer:
    """Measure one matrix; where a null is asked for, the entries of ``tensor`` are shuffled in place."""
    w = matrix.take(tensor)
    spectrum = spectrum_of(w)
    fit = compared = twin = None
    if wanted & (_OF_FIT | _OF_NULL):
        fit = fit_power_law(spectrum.evals, bootstrap=bootstrap, seed=seed)
    if null and wanted & _OF_NULL and len(spectrum.evals):
        twin = spectrum_of(_shuffled(w, spectrum, seed), route=spectrum.route)
        compared = compare_with_null(spectrum.evals, twin.evals, fit=fit)
    found = {**_values(spectrum), **_tail_values(fit, spectrum), **_null_values(compared)}
    return Layer(
        name=matrix.name,
        tensor=name,
        kind=matrix.kind,
        shape=matrix.shape,
        values={m: v for m, v in found.items() if m in wanted and math.isfinite(v)},
        intervals={"tail_exponent": fit.interval} if fit and fit.interval else {},
        reasons={m: r for m, r in _reasons(spectrum, fit, compared, null) if m in wanted},
        density=_density(spectrum, twin, fit, found),
    )


def _shuffled(w: Tensor, spectrum: Spectrum, seed: int) -> Tensor:
    """Put the finite rows' entries into random places, in place: a copy would be a second tensor in memory."""
    return shuffle_in_place(w[w.isfinite().all(dim=1)] if spectrum.bad_rows else w, seed=seed)


def _values(spectrum: Spectrum) -> dict[str, float]:
    ranks = ranks_of(spectrum.evals)
    bulk = marchenko_pastur(spectrum.evals, rows=spectrum.rows, columns=spectrum.columns)
    found = {"non_finite_rows": float(spectrum.bad_rows)}
    if not len(spectrum.evals):
        return found
    if _has_bulk(spectrum):
        found |= {"bulk_edge": bulk.edge, "spikes": float(bulk.spikes)}
    return {
        **found,
        "effective_rank": ranks.effective,
        "effective_rank_sq": ranks.effective_sq,
        "participation_ratio": ranks.participation,
        "stable_rank": ranks.stable,
        **log_norms(spectrum.evals),
    }


def _has_bulk(spectrum: Spectrum) -> bool:
    """Return whether most eigenvalues are above 0: else their median is no measure of noise."""
    return 2 * int((spectrum.evals > 0).sum()) > len(spectrum.evals)


def _tail_values(fit: PowerLawFit | None, spectrum: Spectrum) -> dict[str, float]:
    if fit is None or fit.tail_exponent is None:
        return {}
    log_largest = log_norms(spectrum.evals)["log_spectral_norm"]
    return {
        "tail_exponent": fit.tail_exponent,
        "tail_xmin": fit.xmin,
        "tail_ks": fit.ks,
        "tail_size": float(fit.tail_size),
        "weighted_tail_exponent": weighted_tail_exponent(fit.tail_exponent, log_largest),
    }


def _null_values(compared: NullComparison | None) -> dict[str, float]:
    if compared is None:
        return {}
    same = compared.exponent_same_tail
    found = {} if same is None else {"null_tail_exponent": same}
    return {**found, "heavy_tailed": float(compared.heavy_tailed)}


def _reasons(
    spectrum: Spectrum, fit: PowerLawFit | None, compared: NullComparison | None, null: bool
) -> Iterator[tuple[str, str]]:
    """Yield (metric, why it has no value); of ``heavy_tailed``, which condition decided."""
    if not len(spectrum.evals):
        for metric in WEIGHT_METRICS:
            if metric != "non_finite_rows":
                yield metric, "no row is finite"
        return
    if fit is not None and fit.reason:
        for metric in sorted(_OF_FIT):
            yield metric, fit.reason
    if not float(spectrum.evals.max()):
        for metric in ("log_norm", "log_spectral_norm"):
            yield metric, "all entries are 0"
    if not _has_bulk(spectrum):
        for metric in ("bulk_edge", "spikes"):
            yield metric, "half of the eigenvalues or more are 0: there is no bulk of noise"
    if compared is not None:
        yield "heavy_tailed", compared.reason
        if compared.exponent_same_tail is None:
            yield "null_tail_exponent", compared.reason
    elif not null:
        for metric in sorted(_OF_NULL):
            yield metric, "no null was asked for"


def _density(
    spectrum: Spectrum, twin: Spectrum | None, fit: PowerLawFit | None, found: dict[str, float]
) -> Density | None:
    evals = spectrum.evals.numpy()
    both = evals if twin is None else np.concatenate([evals, twin.evals.numpy()])
    largest = float(evals.max(initial=0.0))
    if not largest:
        return None
    shown = both[both > _LOWEST * largest]
    edges = np.geomspace(shown.min(), max(shown.max(), 1.001 * shown.min()), BINS + 1)
    edges[0], edges[-1] = (
        shown.min(),
        np.nextafter(edges[-1], np.inf),
    )  # rounding pushes neither end out
    counts = np.histogram(evals, edges)[0]
    keys = ("tail_exponent", "tail_xmin", "tail_size", "bulk_edge")
    return Density(
        edges=edges,
        counts=counts,
        null_counts=None if twin is None else np.histogram(twin.evals.numpy(), edges)[0],
        left_out=len(evals) - int(counts.sum()),
        fit={key: found[key] for key in keys if key in found},
    )
