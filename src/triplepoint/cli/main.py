"""``triplepoint``: the table of commands, and errors as messages."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

import typer

import triplepoint
from triplepoint.cli import grok
from triplepoint.cli._streams import kept_for_documents
from triplepoint.cli.check import check
from triplepoint.cli.inspect import inspect
from triplepoint.cli.map import app as map_app
from triplepoint.cli.phase import phase
from triplepoint.cli.report import report
from triplepoint.cli.screen import screen
from triplepoint.cli.swap import swap
from triplepoint.cli.train import train
from triplepoint.errors import TriplepointError

app = typer.Typer(
    name="triplepoint",
    help="Which phase is a training run in, before you pay for the whole of it?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"triplepoint {triplepoint.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command()(screen)
app.command()(train)
app.command()(swap)
app.command()(check)
app.command()(inspect)
app.command()(phase)
app.command()(report)
app.add_typer(grok.app, name="grok")
app.add_typer(map_app, name="map")


def run() -> None:
    """Run the command line; an error of ours becomes a message and exit status 2."""
    try:
        with kept_for_documents() if "--json" in sys.argv else contextlib.nullcontext():
            app()
    except TriplepointError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. Nothing is lost: run the same command again to resume.\n")
        sys.exit(130)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "alloc" not in str(error).lower():
            raise
        sys.stderr.write(
            "Error: There is not enough memory for this.\nTry a smaller model, width, batch or context.\n"
        )
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(1)


if __name__ == "__main__":
    run()
