"""The crossed bootstrap of paired_interval, one draw at a time, in the symbols of its docstring."""

import numpy as np


def paired_interval_by_loops(d, *, resamples, seed):
    """Lower and upper 95 % end, from draws of its own."""
    rng = np.random.default_rng(seed)
    n_seeds, n_windows = d.shape
    d_r = []
    for _ in range(resamples):
        windows = [int(rng.integers(n_windows)) for _ in range(n_windows)]
        seeds = [int(rng.integers(n_seeds)) for _ in range(n_seeds)]
        w = np.mean([d[s, v] for s in range(n_seeds) for v in windows])
        m = np.mean([d[s, v] for s in seeds for v in windows])
        d_r.append(w + np.sqrt(n_seeds / (n_seeds - 1)) * (m - w))
    return np.quantile(d_r, 0.025), np.quantile(d_r, 0.975)
