"""Run the study: ``python -m studies.diff_attention [--from-records | --quick]``."""

from studies._maps import run_map_study

if __name__ == "__main__":
    run_map_study("diff_attention")
