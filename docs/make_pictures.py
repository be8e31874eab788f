"""Make the README's pictures from a finished screen: ``python docs/make_pictures.py runs/demo``.

The terminal is recorded by Rich, the report photographed by headless Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from triplepoint.cli import _screening

IMAGES = Path(__file__).parent / "images"


def terminal(folder: Path) -> None:
    """Write what ``triplepoint screen`` prints at its end as an SVG."""
    recorder = Console(
        record=True, width=104, file=tempfile.TemporaryFile("w"), force_terminal=True
    )
    _screening.console = lambda to_stderr: recorder
    _screening.show_screen(folder, finished_before=False, json=False)
    svg = recorder.export_svg(title="triplepoint screen")
    # no request to a font server: the reader's own monospaced font will do
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace("Fira Code", "monospace")
    (IMAGES / "terminal.svg").write_text(svg)


def report(folder: Path) -> None:
    """Write the top of the report as a PNG."""
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if chromium is None:
        sys.exit("no Chromium on the path: the report was not photographed")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
                "--disable-background-networking", "--disable-sync", f"--user-data-dir={profile}",
                "--window-size=1280,2480", "--virtual-time-budget=8000",
                f"--screenshot={IMAGES / 'report.png'}", (folder / "report.html").resolve().as_uri(),
            ],
            check=True, capture_output=True,
        )  # fmt: skip


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    terminal(Path(sys.argv[1]))
    report(Path(sys.argv[1]))
