"""The samples and matrices of the study, in cells of some minutes at most."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from triplepoint.metrics.heavy_tail import tail_report
from triplepoint.metrics.power_law import fit_power_law
from triplepoint.records import Record

COVERAGE = {
    "pareto-2.5_n128": 500,
    "pareto-2.5_n512": 500,
    "pareto-2.5_n4096": 200,
    "pareto-4_n512": 200,
    "body-2.5_n512": 200,
}
"""Law, density exponent and sample size -> samples."""

BLOCK = 50
RESAMPLES = 200

GAUSSIAN = (
    (64, 64), (128, 128), (256, 256), (512, 512), (1024, 1024),
    (64, 256), (256, 1024), (768, 768), (768, 3072), (1024, 4096),
)  # fmt: skip
OTHERS = {
    "student": ((256, 512), (768, 768)),
    "planted": ((256, 512), (768, 768)),
    "spiked": ((256, 256), (768, 768)),
}
"""Kinds that are no Gaussian noise: independent entries with infinite variance; a planted power law; noise with a
signal of rank 8."""

PER_SHAPE = 20


def sample(law: str, generator: torch.Generator) -> tuple[Tensor, float]:
    """Draw a sample of a law such as ``pareto-2.5_n128``, and return it with the density exponent of its tail."""
    kind, _, rest = law.partition("-")
    alpha, n = float(rest.partition("_n")[0]), int(rest.partition("_n")[2])
    u = torch.rand(n, generator=generator, dtype=torch.float64)
    x = u ** (-1 / (alpha - 1))
    if kind == "body":
        # below 1, where 40 % lie, a density that rises: the tail begins at 1 and nowhere else
        below = torch.rand(n, generator=generator) < 0.4
        x = torch.where(below, u.sqrt(), x)
    return x, alpha


def coverage(law: str, first: int, count: int, resamples: int = RESAMPLES) -> Iterator[Record]:
    """Fit samples ``first`` ... of a law: ``tail_exponent`` with its interval, or ``refused``."""
    for seed in range(first, first + count):
        x, _ = sample(law, torch.Generator().manual_seed(seed))
        fit = fit_power_law(x, bootstrap=resamples, seed=seed)
        if fit.tail_exponent is None or fit.interval is None:
            yield Record(metric="refused", value=1.0, n=fit.tail_size, arm=law, seed=seed)
            continue
        low, high = fit.interval
        yield Record(
            metric="tail_exponent",
            value=fit.tail_exponent,
            low=low,
            high=high,
            n=fit.tail_size,
            arm=law,
            seed=seed,
        )


def matrix(kind: str, m: int, n: int, seed: int) -> Tensor:
    """Draw a matrix: ``gaussian``, ``student`` (2 degrees of freedom), ``planted`` (density exponent 2.5) or ``spiked``."""
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(m, n, generator=generator)
    if kind == "student":
        # t with 2 degrees of freedom is a normal over the root of an exponential of mean 1
        w = w / torch.rand(m, n, generator=generator).log().neg().sqrt()
    if kind == "spiked":
        signal = torch.randn(m, 8, generator=generator) @ torch.randn(8, n, generator=generator)
        w = w + 4 * n**-0.5 * signal
    if kind == "planted":
        left, _, right = torch.linalg.svd(w, full_matrices=False)
        evals = torch.rand(min(m, n), generator=generator).double() ** (-1 / 1.5)
        w = (left * evals.sqrt().float()) @ right
    return w


def claims(kind: str, m: int, n: int, count: int = PER_SHAPE) -> Iterator[Record]:
    """Measure matrices against their shuffled selves: ``heavy_tailed`` 0 or 1, and what decided."""
    for seed in range(count):
        report = tail_report(matrix(kind, m, n, 1000 * m + n + seed), bootstrap=0, seed=seed)
        labels = {"arm": kind, "site": f"{m}x{n}", "seed": seed}
        yield Record(metric="heavy_tailed", value=float(report.null.heavy_tailed), **labels)
        yield Record(metric="beyond", value=float(report.null.beyond), **labels)
        if report.fit.tail_exponent is not None:
            size = report.fit.tail_size
            yield Record(metric="tail_exponent", value=report.fit.tail_exponent, n=size, **labels)
        tops = {"top": report.null.exponent_top, "top_null": report.null.exponent_same_tail}
        for metric, value in tops.items():
            if value is not None:
                yield Record(metric=metric, value=value, n=report.null.top, **labels)


Cells = Mapping[str, Callable[[], Iterator[Record]]]


def cells() -> Cells:
    """Return name -> computation of every cell: claims first, they are quick."""
    kinds = {"gaussian": GAUSSIAN, **OTHERS}
    found = {
        f"{kind}_{m}x{n}": functools.partial(claims, kind, m, n)
        for kind, shapes in kinds.items()
        for m, n in shapes
    }
    for law, total in COVERAGE.items():
        for first in range(0, total, BLOCK):
            found[f"{law}_{first}"] = functools.partial(coverage, law, first, BLOCK)
    return found


def quick_cells() -> Cells:
    """Return one small cell of each kind."""
    return {
        "gaussian_64x64": functools.partial(claims, "gaussian", 64, 64, 3),
        "pareto-2.5_n128_0": functools.partial(coverage, "pareto-2.5_n128", 0, 3, 20),
    }
