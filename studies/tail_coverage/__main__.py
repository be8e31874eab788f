"""Run the study: ``python -m studies.tail_coverage [--from-records | --quick]``."""

from pathlib import Path

from studies._cells import run_study
from studies.tail_coverage.answer import answer
from studies.tail_coverage.cells import cells, quick_cells

if __name__ == "__main__":
    run_study("tail_coverage", cells(), quick_cells(), answer, Path(__file__).parent / "records")
