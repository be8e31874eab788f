"""``triplepoint train``: one arm of a screen, as long as you like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triplepoint.cli._models import MODEL


def train(
    model: Annotated[str, typer.Option(help=MODEL)] = "gpt2-0.4m",
    op: Annotated[str, typer.Option(help="What stands at the norm sites, with or without preset; norm for the model's own.")] = "norm",
    data: Annotated[str | None, typer.Option(help="As in screen. Default: the embedded corpus.")] = None,
    train_tokens: Annotated[int | None, typer.Option(help="Train on the first N tokens. Default: all.")] = None,
    steps: Annotated[int, typer.Option(help="Optimiser steps.")] = 1000,
    eval_every: Annotated[int, typer.Option(help="Steps between evaluations.")] = 50,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints; 0 for one at the end.")] = 250,
    seed: Annotated[int, typer.Option(help="Seed of weights, batches and dropout.")] = 0,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 1e-3,
    batch: Annotated[int, typer.Option(help="Sequences per step, over all processes.")] = 8,
    context: Annotated[int | None, typer.Option(help="Tokens per sequence. Default: the model's own; 128 for models of your own.")] = None,
    schedule: Annotated[str, typer.Option(help="cosine or constant.")] = "cosine",
    warmup: Annotated[int, typer.Option(help="Steps of warm-up.")] = 100,
    weight_decay: Annotated[float, typer.Option(help="AdamW's, on matrices only.")] = 0.1,
    dropout: Annotated[float, typer.Option(help="The model's.")] = 0.0,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    tokenizer: Annotated[str | None, typer.Option(help="Local tokenizer folder (extra hf). Default: bytes.")] = None,
    vocab: Annotated[int | None, typer.Option(help="Vocabulary of a .bin file. Default: 50304.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: runs/train-HASH.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the records as JSON Lines, and nothing else on stdout.")] = False,
) -> None:  # fmt: skip
    """Train one model with one op; resumable, several processes through ``accelerate launch``."""
    from triplepoint.blueprints import blueprint_of
    from triplepoint.cli._output import command_line, resumable
    from triplepoint.cli._training import arm_of, evaluation_steps, run_with_bar, show_run
    from triplepoint.recipes import Recipe
    from triplepoint.runs import default_folder
    from triplepoint.sweeps import Cell, DataSpec

    blueprint = blueprint_of(model).architecture
    arm, swapped = arm_of(blueprint, op)
    recipe = Recipe(
        steps=steps, lr=lr, batch=batch, warmup=warmup, schedule=schedule, weight_decay=weight_decay,
        precision=precision, seed=seed, checkpoint_every=checkpoint_every,
        eval_steps=evaluation_steps(steps, eval_every),
    )  # fmt: skip
    spec = DataSpec(
        path=data, tokenizer=tokenizer, vocab=vocab, train_tokens=train_tokens,
        context=blueprint.context if context is None else context,
    )  # fmt: skip
    cell = Cell(
        path=out or default_folder("train", model, op, spec, recipe, dropout), arm=arm, size=blueprint.name, data=spec,
        recipe=recipe, dropout=dropout, op=swapped, changes=getattr(blueprint, "changes", {}),
    )  # fmt: skip
    with resumable(command_line(cell.path)):
        run = run_with_bar(cell)
    show_run(run, json=json)
