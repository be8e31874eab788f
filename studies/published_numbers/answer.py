"""Every printed number beside ours, the inconsistencies, and one line of JSON."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable

from studies._cells import finish
from studies.published_numbers.comparing import Compared, compare
from triplepoint.published import load_printed, load_values


def compare_all() -> list[Compared]:
    """Recompute every printed number, in the order of the tables."""
    shipped = load_values()
    return [compare(row, shipped) for row in load_printed()]


def figures(rows: Iterable[Compared]) -> dict[str, int]:
    """Count the rows: what was recomputed, how it compares, and what could not be.

    ``recomputed`` is ``agree + differ + not_printed``; ``agree_within_the_rounding_of_values`` is a part of
    ``agree``.
    """
    rows = list(rows)
    n = Counter(row.status for row in rows)
    loose = n["agrees within the rounding of its values"]
    found = {
        "recomputed": len(rows) - n["not recomputable"],
        "agree": n["agrees"] + loose,
        "agree_within_the_rounding_of_values": loose,
        "differ": n["differs"],
        "not_printed": n["not printed"],
        "not_recomputable": n["not recomputable"],
    }
    fitting = [r.row.quantity for r in rows if r.status.startswith("agrees")]
    return found | {q: fitting.count(q) for q in ("sd_population", "sd_sample")}


def markdown_row(row: Compared) -> str:
    """Return one row of the table: what, printed, ours, verdict, where and why."""
    printed = row.row.text or "-"
    ours = "-" if row.ours is None else f"{row.ours:.6g}"
    verdict = f"{row.status} by {row.by:+.3g}" if row.status == "differs" else row.status
    why = f"; {row.row.note}" if row.row.note and row.status in ("differs", "not recomputable") else ""  # fmt: skip
    return f"| {row.row.what} | {printed} | {ours} | {verdict} | {row.row.where or '-'}{why} |"


HEAD = "| number | printed | recomputed | verdict | where |\n|---|---|---|---|---|"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies.published_numbers")
    for flag in ("--from-records", "--quick"):
        parser.add_argument(flag, action="store_true", help="the same: it takes seconds")
    parser.add_argument("--differing", action="store_true", help="only the inconsistencies")
    parser.add_argument("--json", action="store_true", help="every row as a line of JSON")
    given = parser.parse_args()
    rows = compare_all()
    differing = [row for row in rows if row.status == "differs"]
    if given.json:
        for row in rows:
            print(json.dumps(_plain(row)))
    elif not given.differing:
        print(f"All numbers\n\n{HEAD}", *map(markdown_row, rows), "", sep="\n")
    if not given.json:
        print(f"Inconsistencies\n\n{HEAD}", *map(markdown_row, differing), "", sep="\n")
    finish("published_numbers", figures(rows))


def _plain(row: Compared) -> dict[str, object]:
    by = None if row.by is None or abs(row.by) == float("inf") else row.by
    return {
        "what": row.row.what,
        "printed": row.row.text,
        "recomputed": row.ours,
        "status": row.status,
        "by": by,
        "where": row.row.where,
        "note": row.row.note,
    }
