"""``triplepoint inspect``: spectra and ranks of a checkpoint's weights, and what data show of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def inspect(
    checkpoint: Annotated[str, typer.Argument(metavar="CKPT", help="A safetensors or .pt file, a Hugging Face folder, a run folder (all its checkpoints), or a named size.", show_default=False)],
    data: Annotated[str | None, typer.Option(help="Text, .bin file, folder of data or of images; 'embedded' for the embedded corpus. CKPT must be a run's, or a named size.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Local tokenizer folder for --data (extra hf). Default: bytes.")] = None,
    metrics: Annotated[str, typer.Option(help="Names, comma-separated. Default: all.", show_default=False)] = "",
    compare: Annotated[str | None, typer.Option(metavar="CKPT2", help="Another checkpoint of the model: CKPT is before, this after.")] = None,
    split_qkv: Annotated[bool, typer.Option("--split-qkv", help="Measure fused q, k and v as three matrices.")] = False,
    bootstrap: Annotated[int, typer.Option(help="Resamples for the interval of an exponent; 0 for none.")] = 200,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: runs/inspect-HASH.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="List every matrix and every skipped tensor.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the records as JSON Lines, and nothing else on stdout.")] = False,
) -> None:  # fmt: skip
    """Measure every weight matrix: tail exponent with interval and null, spikes, ranks, norms; nothing is skipped in silence."""
    from triplepoint.cli._inspected import show_inspection
    from triplepoint.cli._inspecting import Data, chosen_metrics, measure, opened

    weights, activations = chosen_metrics(metrics, with_data=data is not None)
    subjects = opened(checkpoint, compare)
    shown = Data.load(data, subjects[-1], tokenizer) if data is not None else None
    run = measure(
        subjects, out=out, metrics=weights, activations=activations, split_qkv=split_qkv,
        bootstrap=bootstrap, data=shown,
    )  # fmt: skip
    show_inspection(run, json=json, verbose=verbose)
