"""Run the study: ``python -m studies.adamw_addition [--from-records | --quick]``."""

from pathlib import Path

from studies._cells import run_study
from studies.adamw_addition.answer import answer
from studies.adamw_addition.cells import cells, quick_cells

if __name__ == "__main__":
    run_study("adamw_addition", cells(), quick_cells(), answer, Path(__file__).parent / "records")
