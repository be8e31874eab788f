"""Run the study: ``python -m studies.appendix_d [--from-records | --quick]``."""

from pathlib import Path

import torch

from studies._cells import run_study
from studies.appendix_d.answer import answer
from studies.appendix_d.cells import cells, quick_cells

if __name__ == "__main__":
    torch.set_num_threads(1)
    run_study("appendix_d", cells(), quick_cells(), answer, Path(__file__).parent / "records")
