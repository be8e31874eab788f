"""How an inspection ends on a terminal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from triplepoint.cli._output import console
from triplepoint.cli._streams import documents
from triplepoint.inspection.folders import InspectionRun
from triplepoint.records import to_line
from triplepoint.report import write_report
from triplepoint.report.formats import shortened
from triplepoint.report.spectra_activations import dead_units, site_table, whole_numbers
from triplepoint.report.spectra_rows import (
    ORDER,
    MatrixRow,
    Sheet,
    exponent_cell,
    sheets_of,
    shown,
    spectral_norm,
)
from triplepoint.report.spectra_tables import ARROWS, change_table, unmatched
from triplepoint.report.spectra_words import CAUTION, headline

ROWS = 20
"""Matrices listed without ``--verbose``."""
NAME, SHORT_NAME = 27, 24
"""Characters of a matrix's name that fit beside its numbers in 100 columns, or in 80; its end tells most."""
EXPONENT = 22
"""Characters of an exponent with its interval, or of the reason why there is none."""
WIDE = 95
"""Columns from which on all numbers fit; with fewer, the effective rank and the largest singular value are left out."""

UNSPLIT = (
    "Nothing was split: no fused q, k, v, or no numbers of heads that tell which rows they are."
)


def show_inspection(run: InspectionRun, *, json: bool, verbose: bool) -> None:
    """Write the report; print the records, or the matrices with the most notable ones first."""
    page = write_report(run.path)
    if json:
        documents().writelines(f"{to_line(record)}\n" for record in run.records)
        return
    sheets = sheets_of(run.facts, run.records)
    out = console(to_stderr=False)
    word, sentence, _ = headline(sheets)
    about = "" if sheets[0].arm is not None else f"{sheets[-1].name}: "
    out.print(f"{about}{word}.", style="bold", soft_wrap=True, markup=False)
    out.print(sentence, markup=False)
    if sheets[0].arm is not None:
        _show_changes(out, sheets[0], sheets[1], verbose)
    else:
        if len(sheets) > 1:
            out.print(_steps(sheets))
        _show_matrices(out, sheets[-1], verbose)
    _show_data(out, run)
    if run.facts["asked"]["split_qkv"] and not any(
        r.name.endswith("[q]") for s in sheets for r in s.rows
    ):
        out.print(UNSPLIT, soft_wrap=True)
    for sheet in sheets if sheets[0].arm is not None else sheets[-1:]:
        _show_skipped(out, sheet, verbose)
    out.print(CAUTION, style="dim")
    out.print(f"Report: {page}", soft_wrap=True, markup=False)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        # only a reason can be longer than its column is wide
        more = (
            {"min_width": 12, "max_width": EXPONENT} if column == "exponent" else {"no_wrap": True}
        )
        table.add_column(column, justify="right" if place else "left", **more)
    return table


def _show_matrices(out: Console, sheet: Sheet, verbose: bool) -> None:
    rows = sheet.notable()
    heads = ("matrix", "shape", "exponent", "heavy", "spikes", "stable\nrank", "eff.\nrank", "largest\ns. value")  # fmt: skip
    columns, name = (len(heads), NAME) if out.width >= WIDE else (len(heads) - 2, SHORT_NAME)
    table = _table(*heads[:columns])
    for row in rows if verbose else rows[:ROWS]:
        table.add_row(*_cells(row, name)[:columns])
    out.print(ORDER, style="dim")
    out.print(table, markup=False)
    _say_rest(out, len(rows), verbose)


def _cells(row: MatrixRow, width: int) -> list[str]:
    exponent, small = exponent_cell(row)
    bad = row.values.get("non_finite_rows")
    name = shortened(row.name, width) + (f"\n  {bad:.0f} rows not finite" if bad else "")
    heavy = {True: "yes", False: "no", None: ""}[row.heavy]
    ranks = [shown(m, row.values.get(m)) for m in ("stable_rank", "effective_rank")]
    if exponent == "\N{EN DASH}":
        told = small or exponent
    else:
        told = f"{exponent} [{small.replace(' to ', ', ')}]" if small else exponent
    return [
        name, " x ".join(map(str, row.shape)), told, heavy, shown("spikes", row.values.get("spikes")), *ranks,
        shown("spectral_norm", spectral_norm(row)),
    ]  # fmt: skip


def _say_rest(out: Console, rows: int, verbose: bool) -> None:
    if rows > ROWS and not verbose:
        out.print(f"and {rows - ROWS} more: --verbose, or the report.", style="dim")


def _show_changes(out: Console, before: Sheet, after: Sheet, verbose: bool) -> None:
    changes = change_table(before, after)
    out.print(
        f"Before: {before.name}. After: {after.name}. Of the matrices in both, what changed most first.",
        style="dim", soft_wrap=True, markup=False,
    )  # fmt: skip
    table = _table("matrix", *(_broken(head) for head in changes.heads))
    for line in changes.lines if verbose else changes.lines[:ROWS]:
        cells = (f"{cell.main} {_arrow(cell.small)}".rstrip() for cell in line.cells)
        table.add_row(shortened(line.row.name, NAME), *cells)
    out.print(table, markup=False)
    _say_rest(out, len(changes.lines), verbose)
    apart = unmatched(before, after)
    if apart:
        out.print(f"Not compared: {len(apart)} matrices.", soft_wrap=True)
        for name, why in apart if verbose else apart[:3]:
            out.print(f"  {name}: {why}", soft_wrap=True, markup=False)


def _arrow(small: str) -> str:
    return small[:1] if small[:1] in ARROWS.values() else ""


def _broken(head: str) -> str:
    """Return a heading on two lines, in lower case."""
    first, _, last = head.lower().rpartition(" ")
    return f"{first}\n{last}" if first else last


def _steps(sheets: Sequence[Sheet]) -> Table:
    """Return medians over the matrices, step by step."""
    table = _table(
        "step", "heavy-tailed", "median exponent", "median stable rank", "median effective rank"
    )
    for sheet in sheets:
        medians = [
            f"{statistics.median(values):.2f}" if (values := sheet.values(metric)) else "\N{EN DASH}"
            for metric in ("tail_exponent", "stable_rank", "effective_rank")
        ]  # fmt: skip
        judged = sum(row.heavy is not None for row in sheet.rows)
        heavy = f"{len(sheet.heavy())} of {judged}" if judged else "\N{EN DASH}"
        table.add_row(f"{sheet.step:,}", heavy, *medians)
    return table


def _show_data(out: Console, run: InspectionRun) -> None:
    records = run.records
    whole, (heads, sites) = whole_numbers(records), site_table(records)
    if whole:
        table = _table("with data", "")
        for name, value in whole:
            table.add_row(name, value)
        out.print(table)
    if sites:
        table = _table("site", *heads)
        for site, cells in sites:
            table.add_row(site, *cells)
        out.print(table, markup=False)
    if dead := dead_units(records):
        out.print(dead, soft_wrap=True, markup=False)


def _show_skipped(out: Console, sheet: Sheet, verbose: bool) -> None:
    if not sheet.skipped:
        return
    where = f" in {sheet.name}" if sheet.arm is not None else ""
    out.print(f"Not measured{where}: {len(sheet.skipped)} tensors", soft_wrap=True, markup=False)
    for reason, tensors in sheet.skip_counts():
        out.print(f"  {tensors:4d}  {reason}", markup=False)
    for skipped in sheet.skipped if verbose else ():
        shape = list(skipped["shape"])
        out.print(f"  {skipped['name']} {shape}: {skipped['reason']}", style="dim", soft_wrap=True, markup=False)  # fmt: skip
