"""``triplepoint grok toy | simulate | train``: runs with a folder, records and a report."""

from __future__ import annotations

from typing import Annotated

import typer

from triplepoint.cli.grok._options import (
    Act,
    Fraction,
    Hidden,
    Json,
    Modulus,
    Noise,
    Operation,
    Out,
    Seed,
    task_spec,
)


def toy(
    name: Annotated[str, typer.Argument(help="addition, parabola, two-layer-linear, two-layer-linear-singular or leaky-relu.")] = "addition",
    lam: Annotated[str, typer.Option(help="Weights of the norm beside the sum of squares.")] = "0.01,0.1,0.2",
    start: Annotated[str | None, typer.Option(help="First parameters, e.g. --start=-1,1. Default: the paper's, or one that shows both phases.")] = None,
    lr: Annotated[float, typer.Option(help="Step of gradient descent.")] = 0.1,
    steps: Annotated[int, typer.Option(help="Steps.")] = 2000,
    out: Out = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Watch both phases in two or more parameters, beside the closed form."""
    from triplepoint.cli._output import print_json
    from triplepoint.cli.grok._show import show_toy
    from triplepoint.experiments.specs import as_numbers
    from triplepoint.experiments.toys import run_toy, toy_document
    from triplepoint.report import write_report
    from triplepoint.runs import default_folder

    lams = as_numbers(lam, "--lam")
    first = None if start is None else as_numbers(start, "--start")
    path = out or default_folder("grok", "toy", name, lams, first, lr, steps)
    run, ends = run_toy(path, name=name, lams=lams, start=first, eta=lr, steps=steps)
    page = write_report(run.path)
    if json:
        print_json(toy_document(run, ends))
    else:
        show_toy(ends, page)


def simulate(
    p: Modulus = None,
    hidden: Hidden = None,
    fraction: Fraction = 0.7,
    operation: Operation = "add",
    activation: Act = "relu",
    lam: Annotated[float, typer.Option(help="Weight decay against the sum of squares; 0 is the paper's limit and needs hidden >= training samples.")] = 0.0,
    duration: Annotated[float, typer.Option(help="Slow time; 5 is the paper's 5000 steps of 1e-3.")] = 5.0,
    eta: Annotated[float, typer.Option(help="Euler's step in slow time; 1e-3 is the paper's, 2e-2 ends at the same place.")] = 1e-3,
    integrator: Annotated[str, typer.Option(help="euler or adaptive.")] = "euler",
    std: Annotated[float | None, typer.Option(help="Of the first layer's entries. Default: p^-1/4.")] = None,
    label_noise: Noise = 0.0,
    seed: Seed = 0,
    out: Out = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Follow the isolated flow of the first layer, as the paper does; p=37 takes a minute, p=23 a few seconds."""
    from triplepoint.cli._output import Track, command_line, resumable
    from triplepoint.cli.grok._show import show_run
    from triplepoint.experiments.simulating import SimulationSpec, run_simulation
    from triplepoint.experiments.specs import one_thread
    from triplepoint.runs import default_folder

    one_thread()
    task = task_spec(operation, p, fraction, label_noise, seed)
    spec = SimulationSpec(
        task=task, hidden=task.width(hidden), activation=activation,
        std=std, lam=lam, duration=duration, integrator=integrator, eta=eta,
    )  # fmt: skip
    path = out or default_folder("grok", "simulate", spec)
    with resumable(command_line(path)), Track("simulate", duration) as track:
        run = run_simulation(
            path, spec, watch=lambda at: track.at(at.t, f"held-out accuracy {at.test_accuracy:.0%}")
        )
    show_run(run, json=json)


def train(
    p: Modulus = None,
    hidden: Hidden = None,
    fraction: Fraction = 0.7,
    operation: Operation = "add",
    model: Annotated[str, typer.Option(help="two-layer, or a named size that reads the pairs as tokens, e.g. gpt2-0.1m.")] = "two-layer",
    activation: Act = "relu",
    loss: Annotated[str, typer.Option(help="mse or cross_entropy.")] = "mse",
    steps: Annotated[int, typer.Option(help="Optimiser steps, full batch.")] = 6000,
    lr: Annotated[float, typer.Option(help="AdamW's, constant.")] = 1e-3,
    weight_decay: Annotated[float, typer.Option(help="AdamW's; about 1 is what the field groks with.")] = 1.0,
    eval_every: Annotated[int, typer.Option(help="Steps between evaluations.")] = 50,
    diagnose_every: Annotated[int, typer.Option(help="Steps between tangent diagnostics (mse); 0 for none.")] = 1000,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints; 0 for one at the end.")] = 1000,
    label_noise: Noise = 0.0,
    seed: Seed = 0,
    out: Out = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Train all layers with AdamW, watched by the grokking monitor; resumable."""
    from triplepoint.cli._output import Track, command_line, resumable
    from triplepoint.cli.grok._show import show_run
    from triplepoint.experiments.specs import one_thread
    from triplepoint.experiments.training import TrainingSpec, run_training
    from triplepoint.runs import default_folder

    one_thread()
    task = task_spec(operation, p, fraction, label_noise, seed)
    spec = TrainingSpec(
        task=task, model=model, hidden=task.width(hidden),
        activation=activation, loss=loss, steps=steps, lr=lr, weight_decay=weight_decay,
        eval_every=eval_every, diagnose_every=diagnose_every or None, checkpoint_every=checkpoint_every,
    )  # fmt: skip
    path = out or default_folder("grok", "train", spec)
    with resumable(command_line(path)), Track("train", steps) as track:
        run = run_training(path, spec, watch=lambda step, loss: track.at(step, f"loss {loss:.2e}"))
    show_run(run, json=json)
