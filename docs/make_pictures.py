"""Make the README's pictures: ``python docs/make_pictures.py [NAME ...]``, each from the commands that stand below.

What the commands write goes to ``runs/pictures``; what is finished there is not run again. Terminals are recorded by Rich,
pages photographed by headless Chromium.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageChops
from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).parent / "images"
RUNS = Path("runs") / "pictures"
COLUMNS = 100
MARGIN = 16
"""Pixels that are left around what is drawn."""


@dataclass(frozen=True)
class Terminal:
    """What a command prints."""

    command: str

    def take(self, name: str) -> Path:
        """Write it as an SVG."""
        kept = (
            RUNS / f"{name}.ansi"
        )  # of the first time: a finished run says only that it is finished
        if not kept.exists():
            kept.write_text(_run(self.command))
        recorder = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))
        recorder.print(Text.from_ansi(kept.read_text()))
        svg = recorder.export_svg(title=self.command.partition(" --out")[0])
        # no request to a font server: the reader's own monospaced font will do
        svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace("Fira Code", "monospace")
        path = IMAGES / f"{name}.svg"
        path.write_text(svg)
        return path


@dataclass(frozen=True)
class Page:
    """A part of the page that commands write."""

    commands: tuple[str, ...]
    page: str
    part: str
    """The id of its section."""
    height: int
    """Pixels at a width of 1280."""

    def take(self, name: str) -> Path:
        """Photograph it as a PNG."""
        for command in self.commands:
            _run(command)
        text = (RUNS / self.page).read_text()
        alone = f"<style>header, footer, main > :not(#{self.part}) {{ display: none !important }}</style>"
        path = IMAGES / f"{name}.png"
        with tempfile.TemporaryDirectory() as folder:
            copy, shot = Path(folder) / "page.html", Path(folder) / "shot.png"
            copy.write_text(text.replace("</head>", f"{alone}</head>", 1))
            _photograph(copy, shot, self.height)
            trimmed(Image.open(shot).convert("RGB")).save(path, optimize=True)
        return path


SMALL = f"triplepoint train --model gpt2-0.1m --train-tokens 20000 --steps 1500 --out {RUNS}/small"
PICTURES = {
    "screen": Terminal(
        "triplepoint screen --train-tokens 50000 --planned-steps 3000 "
        f"--candidates dyt:recommended --criterion fixed_step --out {RUNS}/screen"
    ),
    "map": Page(
        (f"python -m studies.phase_map --from-records --report {RUNS}/map",), "map/report.html", "phases", 738
    ),
    "swap": Terminal("triplepoint swap llama-0.1m --to dyt:recommended --where pre_attn,pre_mlp --dry-run"),
    "watch": Page(
        (SMALL, f"triplepoint phase {RUNS}/small --out {RUNS}/phase.html"), "phase.html", "curves", 700
    ),
    "inspect": Page(
        (SMALL, f"triplepoint inspect {RUNS}/small --out {RUNS}/inspected"),
        "inspected/report.html", "density", 860,
    ),
    "grok": Page(
        (f"triplepoint grok train --p 23 --steps 6000 --out {RUNS}/mod23",), "mod23/report.html", "curves", 860
    ),
}  # fmt: skip


def trimmed(image: Image.Image) -> Image.Image:
    """Cut the white around what is drawn."""
    left, top, right, bottom = ImageChops.invert(image).getbbox()
    ends = min(right + MARGIN, image.width), min(bottom + MARGIN, image.height)
    return image.crop((max(left - MARGIN, 0), max(top - MARGIN, 0), *ends))


def _run(command: str) -> str:
    """Run a command of this environment and return what it printed."""
    print(f"$ {command}", flush=True)
    program, *rest = command.split()
    here = Path(sys.executable).parent / program
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    done = subprocess.run(
        [str(here), *rest], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def _photograph(page: Path, shot: Path, height: int) -> None:
    """Write a page's first pixels as a PNG."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((found for name in names if (found := shutil.which(name))), None)
    if chromium is None:
        sys.exit("no Chromium on the path: the page was not photographed")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--hide-scrollbars", "--disable-background-networking", "--disable-component-update",
                "--disable-sync", f"--user-data-dir={profile}", f"--window-size=1280,{height}",
                "--virtual-time-budget=8000", f"--screenshot={shot}", page.as_uri(),
            ],
            check=True, capture_output=True,
        )  # fmt: skip


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    RUNS.mkdir(parents=True, exist_ok=True)
    for asked in sys.argv[1:] or PICTURES:
        print(PICTURES[asked].take(asked))
