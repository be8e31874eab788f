"""Train what is missing, build the benchmark from everything that is stored, and score the rule and its rivals on it."""

from __future__ import annotations

import argparse
from pathlib import Path

from studies._cells import finish
from studies._maps import run_missing, shortened
from studies.screening_benchmark.answer import answer
from studies.screening_benchmark.building import stored_runs
from studies.screening_benchmark.miniatures import compared, record
from studies.screening_benchmark.second_corpus import plays
from triplepoint.evidence import benchmark_from
from triplepoint.evidence.loading import SHIPPED
from triplepoint.maps import MapPlan
from triplepoint.maps.planning import plan_cells
from triplepoint.screening.learning import build
from triplepoint.screening.rulebook import RuleBook

HERE = Path(__file__).parent
RECORDS = HERE / "records"


def main() -> None:
    """Serve the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.screening_benchmark")
    parser.add_argument(
        "--from-records", action="store_true", help="score what ships, train and write nothing"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test of under a minute")
    parser.add_argument("--runs", type=Path, default=Path("runs") / "map-screening_benchmark")
    given = parser.parse_args()
    if given.quick:
        plan = shortened(MapPlan.from_toml((HERE / "map.toml").read_text()))
        run_missing(plan_cells(plan, given.runs / "quick"), given.runs / "quick" / "stored")
    elif not given.from_records:
        train_missing(given.runs)
        runs = stored_runs()
        build(runs, SHIPPED)
        RuleBook.fit(benchmark_from(SHIPPED), miniature=record(compared(runs))).write()
    finish("screening_benchmark", answer(benchmark_from(SHIPPED)))


def train_missing(runs: Path) -> None:
    """Train the cells of both corpora that are not stored yet."""
    first = MapPlan.from_toml((HERE / "map.toml").read_text())
    run_missing(plan_cells(first, runs), RECORDS)
    text = str(plays(runs / "second"))
    second = MapPlan.from_toml((HERE / "second.toml").read_text()).model_copy(update={"data": text})
    run_missing(plan_cells(second, runs / "second"), RECORDS)


if __name__ == "__main__":
    main()
