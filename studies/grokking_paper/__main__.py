"""Run the study: ``python -m studies.grokking_paper [--from-records | --quick]``."""

from pathlib import Path

import torch

from studies._cells import run_study
from studies.grokking_paper.answer import answer
from studies.grokking_paper.cells import cells, quick_cells

if __name__ == "__main__":
    torch.set_num_threads(1)
    stored = Path(__file__).parent / "records"
    run_study("grokking_paper", cells(), quick_cells(), answer, stored)
