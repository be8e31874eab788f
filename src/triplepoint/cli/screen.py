"""``triplepoint screen``: should the norms be replaced, for this training?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triplepoint.cli._models import MODEL


def screen(
    data: Annotated[str | None, typer.Option(help="Text file or folder, .bin file or folder, datasets folder. Default: the embedded corpus, Python's own standard library.")] = None,
    model: Annotated[str, typer.Option(help=MODEL)] = "gpt2-0.4m",
    candidates: Annotated[str, typer.Option(help="Ops to try, comma-separated, each with or without preset.")] = "dyt:paper,dyt:recommended",
    train_tokens: Annotated[int | None, typer.Option(help="Train on the first N tokens. Default: all.")] = None,
    planned_tokens: Annotated[int | None, typer.Option(help="Length of the training to decide about, in tokens processed.")] = None,
    planned_steps: Annotated[int | None, typer.Option(help="The same in steps. Default: 20 times --steps.")] = None,
    steps: Annotated[int, typer.Option(help="Length of the calibration.")] = 500,
    seeds: Annotated[int, typer.Option(help="Paired repetitions.")] = 2,
    criterion: Annotated[str, typer.Option(help="Endpoint that counts: best_checkpoint or fixed_step.")] = "best_checkpoint",
    lr: Annotated[float, typer.Option(help="Planned peak learning rate.")] = 1e-3,
    lr_grid: Annotated[bool, typer.Option("--lr-grid", help="Each arm at its own best of 1/3, 1 and 3 times --lr.")] = False,
    batch: Annotated[int, typer.Option(help="Sequences per step.")] = 8,
    context: Annotated[int | None, typer.Option(help="Tokens per sequence. Default: the model's own; 128 for models of your own.")] = None,
    schedule: Annotated[str, typer.Option(help="Planned schedule: cosine or constant.")] = "cosine",
    warmup: Annotated[int, typer.Option(help="Planned warm-up, steps.")] = 100,
    own_schedule: Annotated[bool, typer.Option("--own-schedule", help="Calibrate with the plan's warm-up and schedule.")] = False,
    weight_decay: Annotated[float, typer.Option(help="AdamW's, on matrices only.")] = 0.1,
    dropout: Annotated[float, typer.Option(help="The model's, in every arm.")] = 0.0,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    tokenizer: Annotated[str | None, typer.Option(help="Local tokenizer folder (extra hf). Default: bytes.")] = None,
    vocab: Annotated[int | None, typer.Option(help="Vocabulary of a .bin file. Default: 50304.")] = None,
    tie_margin: Annotated[float, typer.Option(help="Fraction of the baseline's loss that counts as a tie.")] = 0.005,
    workers: Annotated[int | None, typer.Option(help="Processes at a time. Default: one per core; one on CUDA.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder. Default: runs/screen-HASH.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else on stdout.")] = False,
) -> None:  # fmt: skip
    """Train short paired calibrations of the model with its LayerNorm and with each candidate, and judge."""
    from triplepoint.blueprints import blueprint_of
    from triplepoint.cli._output import command_line, resumable
    from triplepoint.cli._screening import Watcher, planned, show_screen
    from triplepoint.resources import default_workers
    from triplepoint.runs import default_folder
    from triplepoint.screening import screen_model
    from triplepoint.sweeps import DataSpec

    context = blueprint_of(model).context if context is None else context
    plan = planned(
        steps=steps, planned_steps=planned_steps, planned_tokens=planned_tokens, tokens_per_step=batch * context,
        lr=lr, batch=batch, warmup=warmup, schedule=schedule, weight_decay=weight_decay, precision=precision,
    )  # fmt: skip
    spec = DataSpec(
        path=data, tokenizer=tokenizer, vocab=vocab, train_tokens=train_tokens, context=context
    )
    names = candidates.split(",")
    out = out or default_folder(
        "screen",
        model,
        spec,
        names,
        plan,
        steps,
        seeds,
        criterion,
        lr_grid,
        dropout,
        tie_margin,
        own_schedule,
    )
    watch = Watcher(plan, steps=steps, train_tokens=train_tokens, quiet=json)
    with resumable(command_line(out)), watch:
        verdict, folder = screen_model(
            model, data=spec, candidates=names, plan=plan, steps=steps, seeds=seeds, criterion=criterion,
            lr_grid=lr_grid, own_schedule=own_schedule, dropout=dropout, tie_margin=tie_margin, out=out,
            workers=default_workers() if workers is None else workers, command=command_line(out), watch=watch,
        )  # fmt: skip
    show_screen(folder, finished_before=verdict is None, json=json)
