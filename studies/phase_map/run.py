"""Run the cells that are missing and keep their records."""

from __future__ import annotations

import argparse
from pathlib import Path

from studies._arms import run_missing
from studies.phase_map.cells import cell_of, settings

STORED = Path(__file__).parent / "records"


def main() -> None:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="python -m studies.phase_map")
    parser.add_argument("--runs", type=Path, default=Path("runs/phase_map"))
    given = parser.parse_args()
    run_missing({s.name: cell_of(s, given.runs) for s in settings()}, STORED)


if __name__ == "__main__":
    main()
