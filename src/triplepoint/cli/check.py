"""``triplepoint check``: does a model see the future, other rows of its batch, or a random state?"""

from __future__ import annotations

from typing import Annotated

import typer


def check(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A named size, a Hugging Face folder or config.json, module:callable, or a run folder for its best weights.", show_default=False)],
    op: Annotated[str | None, typer.Option(help="Swapped in for the norms. Default: the run's, or none.")] = None,
    attention: Annotated[str | None, typer.Option(help="Of a gpt2 or llama size: sdpa, gated, diff_v1, ...")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of a named size's weights.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else on stdout.")] = False,
) -> None:  # fmt: skip
    """Check causality, length, batch, determinism and train/eval agreement; exit status 1 if one is broken."""
    from triplepoint.cli._checking import inputs_for, model_to_check, show_reports
    from triplepoint.invariance import check as check_model

    built = model_to_check(model, op=op, attention=attention, seed=seed)
    reports = check_model(built, inputs_for(built))
    show_reports(model, reports, json=json)
    raise typer.Exit(any(report.ok is False for report in reports.values()))
