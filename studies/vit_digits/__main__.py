"""Run the study: ``python -m studies.vit_digits [--from-records | --quick]``."""

from studies._maps import run_map_study

if __name__ == "__main__":
    run_map_study("vit_digits")
