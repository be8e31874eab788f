"""Run the study: ``python -m studies.published_numbers``; it computes everything anew in seconds."""

from studies.published_numbers.answer import main

if __name__ == "__main__":
    main()
