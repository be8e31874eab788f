"""``triplepoint map``: many runs over a grid, and one table of what they say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Phase maps: model size x data x op x seed, resumable.", no_args_is_help=True
)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="The plan, a TOML file (see examples/map.toml); or give --grid.")] = None,
    grid: Annotated[str | None, typer.Option(help='Instead of a file: "size=a,b;op=norm,dyt:paper;seed=0,1".')] = None,
    out: Annotated[Path | None, typer.Option(help="The map's folder; with Ray one that all nodes share. Default: runs/map-HASH.")] = None,
    workers: Annotated[int | None, typer.Option(help="Cells at a time, one thread each. Default: what cores and memory allow, or the cluster's CPUs.")] = None,
    executor: Annotated[str, typer.Option(help="local (processes) or ray (extra ray).")] = "local",
    ray_address: Annotated[str | None, typer.Option(help="Of a running cluster: host:port, ray://host:port or auto. Default: one on this machine.")] = None,
    keep_going: Annotated[bool, typer.Option("--keep-going/--fail-fast", help="What a failed cell means for the others.")] = True,
    retries: Annotated[int, typer.Option(help="How often a cell is started again whose worker was lost.")] = 2,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else on stdout.")] = False,
) -> None:  # fmt: skip
    """Run what is missing of a map and write its table; run it again at any time to go on.

    Exit status 1: some cells failed; the others are in the table.
    """
    from triplepoint.cli._map import Watcher, plan_from, show_result
    from triplepoint.cli._output import command_line, resumable
    from triplepoint.maps import run_map
    from triplepoint.runs import default_folder

    plan = plan_from(file, grid)
    folder = out or default_folder("map", plan.model_dump_json())
    command = command_line(folder)
    with resumable(command), Watcher() as watcher:
        result = run_map(
            plan, folder, workers=workers, executor=executor, ray_address=ray_address,
            fail_fast=not keep_going, retries=retries, command=command, watch=watcher,
        )  # fmt: skip
    show_result(result, json=json)
    sys.exit(1 if result.failed else 0)


@app.command()
def status(
    folder: Annotated[Path, typer.Argument(help="A map's folder.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else on stdout.")] = False,
) -> None:  # fmt: skip
    """Say how far a map is; changes nothing."""
    from triplepoint.cli._map import show_status
    from triplepoint.maps import status_of

    show_status(status_of(folder), json=json)
