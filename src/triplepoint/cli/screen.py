"""``triplepoint screen``: should the norms be replaced, for this training?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from triplepoint.cli._models import MODEL

# the parts of the help page
_plan, _training, _looks, _judging, _output = (
    partial(typer.Option, rich_help_panel=name)
    for name in ("The plan", "The training", "The calibration", "The judgement", "The output")
)


def screen(
    data: Annotated[str | None, _training(help="Text file or folder, .bin file or folder, datasets folder. Default: the embedded corpus, Python's own standard library.")] = None,
    model: Annotated[str, _training(help=MODEL)] = "gpt2-0.4m",
    candidates: Annotated[str, _training(help="Ops to try, comma-separated, each with or without preset.")] = "dyt:paper,dyt:recommended",
    train_tokens: Annotated[int | None, _training(help="Train on the first N tokens. Default: all.")] = None,
    batch: Annotated[int, _training(help="Sequences per step.")] = 8,
    context: Annotated[int | None, _training(help="Tokens per sequence. Default: the model's own; 128 for models of your own.")] = None,
    weight_decay: Annotated[float, _training(help="AdamW's, on matrices only.")] = 0.1,
    dropout: Annotated[float, _training(help="The model's, in every arm.")] = 0.0,
    precision: Annotated[str, _training(help="fp32 or bf16.")] = "fp32",
    tokenizer: Annotated[str | None, _training(help="Local tokenizer folder (extra hf). Default: bytes.")] = None,
    vocab: Annotated[int | None, _training(help="Vocabulary of a .bin file. Default: 50304.")] = None,
    planned_tokens: Annotated[int | None, _plan(help="Length of the training to decide about, in tokens processed.")] = None,
    planned_steps: Annotated[int | None, _plan(help="The same in steps. Default: 20 times --steps.")] = None,
    lr: Annotated[float, _plan(help="Planned peak learning rate.")] = 1e-3,
    schedule: Annotated[str, _plan(help="Planned schedule: cosine or constant.")] = "cosine",
    warmup: Annotated[int, _plan(help="Planned warm-up, steps.")] = 100,
    steps: Annotated[int | None, _looks(help="Length of the calibration. With the plan stated, one of 500 steps or more goes on where a shorter one stopped. Default: 500.")] = None,
    until_confident: Annotated[float | None, _looks(help="Instead of --steps: look at 100, 250, 500, 1000 steps, then x 2, and stop once every candidate is judged with at least this probability, e.g. 0.9 (outside the benchmark, where there is none: until the arms' forecasts do not meet).")] = None,
    max_steps: Annotated[int | None, _looks(help="The last look of --until-confident. Default: 2000, or the plan's end.")] = None,
    seeds: Annotated[int, _looks(help="Paired repetitions.")] = 2,
    lr_grid: Annotated[bool, _looks("--lr-grid", help="Each arm at its own best of 1/3, 1 and 3 times --lr.")] = False,
    own_schedule: Annotated[bool, _looks("--own-schedule", help="Calibrate with the plan's warm-up and schedule.")] = False,
    miniature: Annotated[bool, _looks("--miniature", help="Also train the whole plan with every arm at about 1/16 and 1/4 of its parameters and tokens, which decides where the calibration does not.")] = False,
    criterion: Annotated[str, _judging(help="Endpoint that counts: best_checkpoint or fixed_step.")] = "best_checkpoint",
    tie_margin: Annotated[float, _judging(help="Fraction of the baseline's loss that counts as a tie.")] = 0.005,
    baseline_run: Annotated[Path | None, _judging(help="Folder of an earlier run of the baseline to the plan's end, as train makes it: only the candidates are forecast then.")] = None,
    learn: Annotated[Path | None, _judging(help="Folder of finished runs of your own, as a map's: the rule learns from them as well.")] = None,
    explain: Annotated[bool, _output("--explain", help="Print every number that the forecasts are made of, and what it means.")] = False,
    workers: Annotated[int | None, _output(help="Processes at a time. Default: one per core; one on CUDA.")] = None,
    out: Annotated[Path | None, _output(help="Run folder. Default: runs/screen-HASH.")] = None,
    json: Annotated[bool, _output("--json", help="Print one JSON document, and nothing else on stdout.")] = False,
) -> None:  # fmt: skip
    """Train short paired calibrations of the model with its LayerNorm and with each candidate, and judge."""
    from triplepoint.blueprints import blueprint_of
    from triplepoint.cli._output import command_line, resumable
    from triplepoint.cli._screening import Watcher, planned, show_screen
    from triplepoint.resources import default_workers
    from triplepoint.runs import default_folder
    from triplepoint.screening import screen_model
    from triplepoint.screening.looks import Looks
    from triplepoint.screening.plans import calibration_recipe
    from triplepoint.sweeps import DataSpec

    context = blueprint_of(model).context if context is None else context
    plan = planned(
        steps=steps, planned_steps=planned_steps, planned_tokens=planned_tokens, tokens_per_step=batch * context,
        lr=lr, batch=batch, warmup=warmup, schedule=schedule, weight_decay=weight_decay, precision=precision,
    )  # fmt: skip
    looks = Looks.of(plan.steps, steps=steps, until_confident=until_confident, max_steps=max_steps)
    spec = DataSpec(
        path=data, tokenizer=tokenizer, vocab=vocab, train_tokens=train_tokens, context=context
    )
    names = candidates.split(",")
    # not the calibration's length, nor what it is judged with: a longer one goes on where a shorter one stopped
    out = out or default_folder(
        "screen", model, spec, names, plan, calibration_recipe(plan, looks, own_schedule=own_schedule), looks.asked,
        seeds, criterion, lr_grid, dropout, tie_margin,
    )  # fmt: skip
    watch = Watcher(plan, looks, train_tokens=train_tokens, quiet=json)
    with resumable(command_line(out)), watch:
        verdict, folder = screen_model(
            model, data=spec, candidates=names, plan=plan, steps=steps, until_confident=until_confident,
            max_steps=max_steps, seeds=seeds, criterion=criterion, lr_grid=lr_grid, own_schedule=own_schedule,
            dropout=dropout, tie_margin=tie_margin, baseline_run=baseline_run, learned=learn, miniature=miniature, out=out,
            workers=default_workers() if workers is None else workers, command=command_line(out), watch=watch,
            looked=watch.looked, shrunk=watch.shrunk,
        )  # fmt: skip
    show_screen(folder, finished_before=verdict is None, json=json, explain=explain)
