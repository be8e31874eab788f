"""Shared by ``check``: the model that is meant, inputs for it, and the table of laws."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from rich.table import Table
from torch import Tensor, nn

from triplepoint.cli._models import size_of
from triplepoint.cli._output import console, print_json
from triplepoint.errors import PlanError
from triplepoint.invariance import CheckReport
from triplepoint.models import ViTConfig, config_of, model_of
from triplepoint.runs import read_json
from triplepoint.surgery import swap_norms
from triplepoint.weights import load_into, load_tensors

_WORD = {True: "holds", False: "BROKEN", None: "-"}


def model_to_check(name: str, *, op: str | None, attention: str | None, seed: int) -> nn.Module:
    """Build a named size, newly initialised, or a run's model with its best weights where they are kept.

    Raises:
        UnknownNameError: If there is no such size, op or attention.
        PlanError: If what is asked does not fit the model, or a file of weights is given.
        RunFolderError: If the folder is no run folder.
        CheckpointError: If the run's weights are damaged or another model's.
    """
    if os.path.isfile(name):
        raise PlanError(
            f"{name} is a file, and nothing in it says of which model its weights are.\n"
            "Give a named size or a run folder; a module of your own is checked by triplepoint.check_causality(model)."
        )
    size, folder = size_of(name), Path(name) if os.path.isdir(name) else None
    shape, own_op = ({}, None) if folder is None else _of_run(folder)
    if folder is not None and (op, attention) != (None, None):
        raise PlanError(
            f"{name} is a run, whose op and attention are fixed.\nLeave out --op and --attention, or name a size."
        )
    config = config_of(size, **shape)
    if attention is not None:
        if isinstance(config, ViTConfig):
            raise PlanError(f"{size} has one attention only.\nLeave out --attention.")
        config = dataclasses.replace(config, attention=attention)
    torch.manual_seed(seed)
    model = model_of(config)
    if (op or own_op) is not None:
        swap_norms(model, op or own_op)
    best = None if folder is None else folder / "checkpoints" / "best" / "model.safetensors"
    if best is not None and best.exists():
        load_into(model, load_tensors(best), source=best)
    return model


def _of_run(folder: Path) -> tuple[dict[str, int], str | None]:
    """What a run's manifest says of vocabulary, context and op; nothing for a folder of several arms."""
    manifest = read_json(folder / "manifest.json")
    asked, data = manifest.get("asked"), manifest.get("data")
    shape = {
        "vocab": data.get("vocab") if isinstance(data, dict) else None,
        "context": asked.get("context") if isinstance(asked, dict) else None,
    }
    op = manifest.get("op")
    return {k: v for k, v in shape.items() if isinstance(v, int)}, op if isinstance(
        op, str
    ) else None


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
