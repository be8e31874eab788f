"""Many runs: one arm into its folder, and several arms side by side, each resumable."""

from triplepoint.sweeps.arms import DEFINITIONS as DEFINITIONS
from triplepoint.sweeps.arms import ArmRun as ArmRun
from triplepoint.sweeps.arms import checked_model as checked_model
from triplepoint.sweeps.arms import fixed_windows as fixed_windows
from triplepoint.sweeps.arms import is_main_process as is_main_process
from triplepoint.sweeps.arms import load_arm as load_arm
from triplepoint.sweeps.arms import run_arm as run_arm
from triplepoint.sweeps.arms import versions as versions
from triplepoint.sweeps.building import build_model as build_model
from triplepoint.sweeps.building import own_norm as own_norm
from triplepoint.sweeps.cells import Cell as Cell
from triplepoint.sweeps.cells import DataSpec as DataSpec
from triplepoint.sweeps.cells import ImageSpec as ImageSpec
from triplepoint.sweeps.cells import identity_of_cell as identity_of_cell
from triplepoint.sweeps.cells import run_cell as run_cell
from triplepoint.sweeps.executors import Event as Event
from triplepoint.sweeps.executors import Executor as Executor
from triplepoint.sweeps.processes import LocalExecutor as LocalExecutor
from triplepoint.sweeps.processes import run_cells as run_cells
from triplepoint.sweeps.scheduling import run_all as run_all
