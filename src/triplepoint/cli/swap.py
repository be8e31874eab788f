"""``triplepoint swap``: replace a model's norms, say exactly what was done, and keep the result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def swap(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A named size, a Hugging Face folder or config.json, module:callable, or a run folder.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="The op, with or without preset.")] = "dyt:recommended",
    where: Annotated[str | None, typer.Option(help="Roles, or globs of paths, comma-separated: pre_mlp, or 'h.0.*'. Default: all.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if a norm cannot be swapped.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the weights of a model that has none.")] = 0,
    out: Annotated[Path | None, typer.Option(help="New folder for the swapped model; triplepoint.load reads it.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else on stdout.")] = False,
) -> None:  # fmt: skip
    """Replace the LayerNorms and RMSNorms of a model: every norm is in the table, swapped or with the reason why not."""
    from triplepoint.blueprints import save
    from triplepoint.cli._swapping import chosen, model_to_swap, out_or_refuse, show_swap
    from triplepoint.surgery import swap_norms

    out = out_or_refuse(out, dry_run=dry_run)
    blueprint, built = model_to_swap(model, seed=seed)
    report = swap_norms(built, to, where=chosen(where), strict=strict)
    if out is not None:
        save(out, built, blueprint, report)
    show_swap(model, report, out=out, json=json)
