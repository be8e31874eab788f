"""``triplepoint grok``: the geometry of grokking."""

from __future__ import annotations

import typer

from triplepoint.cli.grok._options import SCOPE
from triplepoint.cli.grok.analyse import analyse
from triplepoint.cli.grok.questions import fast_forward, will_it_grok
from triplepoint.cli.grok.runs import simulate, toy, train

app = typer.Typer(
    help=f"The geometry of grokking (arXiv 2511.01938). {SCOPE}", no_args_is_help=True
)
for command in (toy, simulate, fast_forward, will_it_grok, train, analyse):
    app.command(command.__name__.replace("_", "-"), epilog=SCOPE)(command)
