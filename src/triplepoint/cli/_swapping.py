"""Shared by ``swap``: the model that is meant, which of its norms, and the table of what was done."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from rich.table import Table
from torch import nn

from triplepoint.blueprints import Blueprint, blueprint_of
from triplepoint.cli._output import console, print_json
from triplepoint.errors import PlanError
from triplepoint.families import ROLES
from triplepoint.surgery import SwapReport, Where, roles


def out_or_refuse(out: Path | None, *, dry_run: bool) -> Path | None:
    """Return where to write, None for a dry run.

    Raises:
        PlanError: If neither or both are asked for.
    """
    if dry_run == (out is not None):
        raise PlanError(
            "--dry-run writes nothing, --out says where to write.\nGive one of them: --dry-run, or --out DIR."
        )
    return out


def model_to_swap(name: str, *, seed: int) -> tuple[Blueprint, nn.Module]:
    """Build MODEL: with the weights that come with it, else newly initialised."""
    blueprint = blueprint_of(name)
    torch.manual_seed(seed)
    return blueprint, blueprint.model()


def chosen(where: str | None) -> Where:
    """Return the ``where=`` that a comma-separated list of roles or globs means.

    Raises:
        PlanError: If it mixes both.
    """
    words = [word.strip() for word in (where or "").split(",") if word.strip()]
    if not words:
        return None
    named = [word in ROLES for word in words]
    if all(named):
        return roles(*words)
    if any(named):
        raise PlanError(
            f"--where {where} mixes roles and paths.\nGive roles ({', '.join(ROLES)}), or globs of paths."
        )
    return words


def show_swap(name: str, report: SwapReport, *, out: Path | None, json: bool) -> None:
    """Print what was swapped and skipped, or one JSON document."""
    if json:
        print_json({"model": name, "out": out and str(out), **dataclasses.asdict(report)})
        return
    table = Table(box=None, pad_edge=False)
    for column in ("norm", "kind", "role", "", ""):
        table.add_column(column, overflow="fold")
    notes: dict[str, str] = {}  # said once below: beside each norm they would fold its path
    for item in (*report.swapped, *report.skipped):
        text = item.reason or item.warning
        number = notes.setdefault(text, f"({len(notes) + 1})") if text else ""
        done = "left" if item.reason else "swapped"
        table.add_row(item.path, item.kind, item.role, done, number)
    printer = console(to_stderr=False)
    printer.print(table)
    for line in (*(f"{number} {text}" for text, number in notes.items()), *report.policies):
        printer.print(line, soft_wrap=True, markup=False)
    op = report.op + (f":{report.preset}" if report.preset else "")
    printer.print(f"{name}: {len(report.swapped)} norms became {op}, {len(report.skipped)} stay.", soft_wrap=True)  # fmt: skip
    if out is not None:
        printer.print(f"Written to {out}; triplepoint.load({str(out)!r}) builds it.", soft_wrap=True)  # fmt: skip
