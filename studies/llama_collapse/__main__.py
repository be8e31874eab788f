"""Run the study: ``python -m studies.llama_collapse [--from-records | --quick]``."""

from studies._maps import run_map_study
from studies.llama_collapse.answer import answer

if __name__ == "__main__":
    run_map_study("llama_collapse", answer)
