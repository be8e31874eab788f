"""Run the study: ``python -m studies.mechanism [--from-records | --quick]``."""

from pathlib import Path

from studies._cells import run_study
from studies.mechanism.answer import answer
from studies.mechanism.cells import cells, quick_cells

if __name__ == "__main__":
    run_study("mechanism", cells(), quick_cells(), answer, Path(__file__).parent / "records")
