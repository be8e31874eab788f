"""Run the study: ``python -m studies.phase_map [--from-records | --quick]``."""

from studies.phase_map.run import main

if __name__ == "__main__":
    main()
