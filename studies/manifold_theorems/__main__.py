"""Run the study: ``python -m studies.manifold_theorems [--from-records | --quick]``."""

from pathlib import Path

import torch

from studies._cells import run_study
from studies.manifold_theorems.answer import answer
from studies.manifold_theorems.cells import cells, quick_cells

if __name__ == "__main__":
    torch.set_num_threads(1)
    stored = Path(__file__).parent / "records"
    run_study("manifold_theorems", cells(), quick_cells(), answer, stored)
