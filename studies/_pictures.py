"""A Plotly figure as a PNG, by a headless browser."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def photograph(figure: Figure, path: Path) -> None:
    """Write the figure, at its own width and height, as a PNG."""
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((found for name in names if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("There is no Chromium on the path.\nInstall it, or read the tables instead.")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "figure.html"
        bare = figure.to_html(include_plotlyjs=True, config={"displayModeBar": False})
        page.write_text(bare.replace("<body>", '<body style="margin:0">'))
        subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
                "--disable-background-networking", "--disable-sync", f"--user-data-dir={folder}/profile",
                f"--window-size={figure.layout.width},{figure.layout.height}", "--virtual-time-budget=8000",
                f"--screenshot={path}", page.as_uri(),
            ],
            check=True, capture_output=True,
        )  # fmt: skip
