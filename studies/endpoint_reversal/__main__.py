"""Run the study: ``python -m studies.endpoint_reversal [--from-records | --quick]``."""

from studies.endpoint_reversal.run import main

if __name__ == "__main__":
    main()
