"""Shared by ``check``: the model that is meant, inputs for it, and the table of laws."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from rich.table import Table
from torch import Tensor, nn

from triplepoint.blueprints import blueprint_of
from triplepoint.blueprints.sizes import SizeBlueprint
from triplepoint.cli._output import console, print_json
from triplepoint.errors import PlanError
from triplepoint.invariance import CheckReport
from triplepoint.models import ViTConfig, config_of
from triplepoint.surgery import swap_norms

_WORD = {True: "holds", False: "BROKEN", None: "-"}


def model_to_check(name: str, *, op: str | None, attention: str | None, seed: int) -> nn.Module:
    """Build MODEL: a run's or a folder's with its weights where they are kept, any other newly initialised.

    Raises:
        UnknownNameError: If there is no such size, op or attention.
        PlanError: If what is asked does not fit the model.
        ModelError: If the model cannot be built.
        RunFolderError: If the folder is no run folder.
        CheckpointError: If the run's weights are damaged or another model's.
    """
    blueprint = blueprint_of(name)
    if attention is not None:
        if not isinstance(blueprint, SizeBlueprint):
            raise PlanError(
                f"{name} is no named size, so its attention is fixed.\nLeave out --attention, or name a size."
            )
        if isinstance(config_of(name), ViTConfig):
            raise PlanError(f"{name} has one attention only.\nLeave out --attention.")
        blueprint = dataclasses.replace(blueprint, changes={"attention": attention})
    if op is not None and blueprint.architecture is not blueprint:
        raise PlanError(f"{name} is a run, whose op is fixed.\nLeave out --op, or name a size.")
    torch.manual_seed(seed)
    model = blueprint.model()
    if op is not None:
        swap_norms(model, op)
    return model


def inputs_for(model: nn.Module) -> Tensor | None:
    """Return images for a model of images; None where tokens can be drawn."""
    config = getattr(model, "config", None)
    if not isinstance(config, ViTConfig):
        return None
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, config.channels, config.image, config.image, generator=generator)


def show_reports(name: str, reports: Mapping[str, CheckReport], *, json: bool) -> None:
    """Print the table of laws, or one JSON document."""
    broken = [report for report in reports.values() if report.ok is False]
    if json:
        laws = [dataclasses.asdict(report) for report in reports.values()]
        first = broken[0] if broken else None
        found = {
            "broken": first and first.law,
            "first_violation": first and first.first_violation,
            "max_change": (first or max(reports.values(), key=lambda r: r.max_change)).max_change,
        }
        print_json({"model": name, "ok": not broken, **found, "laws": laws})
        return
    table = Table(box=None, pad_edge=False)
    for column in ("law", "", "largest change", "allowed", "note"):
        table.add_column(column, overflow="fold")
    for r in reports.values():
        numbers = ("", "") if r.ok is None else (f"{r.max_change:.2g}", f"{r.limit:.2g}")
        table.add_row(r.law, _WORD[r.ok], *numbers, r.note)
    out = console(to_stderr=False)
    out.print(table)
    for report in broken:
        out.print(str(report), soft_wrap=True)
    out.print(
        f"{name}: {'a law is broken' if broken else 'every law that applies holds'}.",
        soft_wrap=True,
    )
