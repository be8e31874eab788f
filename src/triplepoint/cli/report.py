"""``triplepoint report``: the HTML page of a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
) -> None:
    """Write report.html anew from the folder's records; no torch, no network."""
    from triplepoint.report import write_report

    typer.echo(write_report(folder))
