"""``triplepoint grok analyse CHECKPOINT``: has it generalised, could it, and when?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triplepoint.cli.grok._options import Act, Json, Modulus, Noise, Out, Seed, task_spec


def analyse(
    checkpoint: Annotated[Path, typer.Argument(help="Run folder of grok train, simulate or fast-forward, or a checkpoint of a bias-free two-layer net.")],
    operation: Annotated[str | None, typer.Option(help="Task of a checkpoint that does not say it itself.")] = None,
    p: Modulus = None,
    fraction: Annotated[float, typer.Option(help="Share of the table that was trained on.")] = 0.7,
    activation: Act = "relu",
    label_noise: Noise = 0.0,
    seed: Seed = 0,
    step: Annotated[int | None, typer.Option(help="Which checkpoint of a run folder. Default: the last.")] = None,
    shuffles: Annotated[int, typer.Option(help="Permutations of the labels.")] = 5,
    out: Out = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Measure one checkpoint: accuracies with its own and a refitted head, C, manifold, circles, and what lies ahead."""
    from triplepoint.cli._output import print_json
    from triplepoint.cli.grok._show import show_analysis
    from triplepoint.experiments.analysing import analyse
    from triplepoint.experiments.specs import one_thread
    from triplepoint.experiments.subjects import subject_of
    from triplepoint.experiments.training import TrainingSpec
    from triplepoint.report import write_report
    from triplepoint.runs import default_folder

    one_thread()
    given = None
    if operation is not None or p is not None:
        task = task_spec(operation or "add", p, fraction, label_noise, seed)
        given = TrainingSpec(task=task, activation=activation)
    subject = subject_of(checkpoint, given, step=step)
    path = out or default_folder(
        "grok", "analyse", subject.digest, subject.spec, subject.step, shuffles
    )
    run, found = analyse(path, subject, shuffles=shuffles)
    page = write_report(run.path)
    if json:
        print_json(found)
    else:
        show_analysis(found, page)
