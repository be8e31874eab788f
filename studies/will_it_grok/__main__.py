"""Run the study: ``python -m studies.will_it_grok [--from-records | --quick]``."""

from pathlib import Path

from studies._cells import run_study
from studies.will_it_grok.answer import answer
from studies.will_it_grok.cells import cells, quick_cells

if __name__ == "__main__":
    run_study("will_it_grok", cells(), quick_cells(), answer, Path(__file__).parent / "records")
