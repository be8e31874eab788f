"""``triplepoint phase``: the phases of a run that is already there, from its log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def phase(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="trainer_state.json, CSV, JSON Lines, TensorBoard events, or a folder that holds one; a run folder.", show_default=False)],
    step_column: Annotated[str | None, typer.Option(help="Column of the steps. Default: told from the names, as below.")] = None,
    train: Annotated[str | None, typer.Option(help="Column of the training loss.")] = None,
    val: Annotated[str | None, typer.Option(help="Column of the validation loss.")] = None,
    train_accuracy: Annotated[str | None, typer.Option(help="Column of the training accuracy, a share or percent.")] = None,
    val_accuracy: Annotated[str | None, typer.Option(help="Column of the validation accuracy.")] = None,
    run: Annotated[str | None, typer.Option(help="Which of several runs in the log, as the error without it lists them.")] = None,
    plateau: Annotated[float | None, typer.Option(help="Loss of a guess that ignores the input, nats. Default: a run folder's own, or ln VOCAB.")] = None,
    vocab: Annotated[int | None, typer.Option(help="Tokens or classes that a uniform guess chooses from.")] = None,
    margin: Annotated[float, typer.Option(help="By how much a loss must differ to count, in its unit.")] = 0.05,
    out: Annotated[Path | None, typer.Option(help="Draw it: a run folder, or one file NAME.html.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else on stdout.")] = False,
) -> None:  # fmt: skip
    """Tell a run's phases over its steps, best step, over-fitting onset, T_mem and T_grok; no torch."""
    from triplepoint.cli._phasing import draw, judged, show_phases
    from triplepoint.logs import read_log

    columns = {
        "step": step_column, "train_loss": train, "val_loss": val, "train_accuracy": train_accuracy,
        "val_accuracy": val_accuracy,
    }  # fmt: skip
    found = read_log(log, columns=columns, run=run)
    document = judged(found, plateau=plateau, vocab=vocab, margin=margin)
    page = None if out is None else draw(document, found, out)
    show_phases(document, page, json=json)
