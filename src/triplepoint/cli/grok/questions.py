"""``triplepoint grok fast-forward | will-it-grok``: answers without the wait."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from triplepoint.cli.grok._options import (
    Fraction,
    Hidden,
    Json,
    Modulus,
    Noise,
    Operation,
    Seed,
    task_spec,
)


def fast_forward(
    p: Modulus = None,
    hidden: Hidden = None,
    fraction: Fraction = 0.7,
    operation: Operation = "add",
    label_noise: Noise = 0.0,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option(help="Keep network, records and a report here. Default: nothing is kept."),
    ] = None,
    json: Json = False,
) -> None:
    """Reach the generalising network in tens of gradients; no label of a test sample is looked at."""
    from triplepoint.cli._output import Track, console, print_json
    from triplepoint.experiments.forwarding import run_fast_forward
    from triplepoint.experiments.specs import one_thread
    from triplepoint.report import write_report

    one_thread()
    task = task_spec(operation, p, fraction, label_noise, seed)
    with Track("fast-forward", 400) as track:
        found = run_fast_forward(
            task, hidden=task.width(hidden), path=out,
            watch=lambda at: track.at(at.gradients, f"C = {at.complexity:.1f}"),
        )  # fmt: skip
    if out is not None:
        found["report"] = str(write_report(out))
    if json:
        print_json(found)
        return
    reached = found["gradients_to_99"]
    console(to_stderr=False).print(
        f"Test accuracy {found['test_accuracy']:.1%} after {found['gradients']} gradients ({found['stopped']}), "
        f"{found['cpu_s']} CPU s; "
        + (f"99 % after {reached}." if reached else "99 % was not reached."),
        soft_wrap=True,
    )


def will_it_grok(
    p: Modulus = None,
    hidden: Hidden = None,
    fraction: Fraction = 0.7,
    operation: Operation = "add",
    label_noise: Noise = 0.0,
    shuffles: Annotated[int, typer.Option(help="Permutations of the labels.")] = 5,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Can the task generalise from this much data? Compares the true labels with shuffled ones; no test data."""
    from triplepoint.cli._output import Track, console, print_json
    from triplepoint.experiments.specs import first_layer, one_thread
    from triplepoint.grokking import will_it_grok

    one_thread()
    spec = task_spec(operation, p, fraction, label_noise, seed)
    task = spec.build()
    W1 = first_layer(task, spec.width(hidden), std=None, seed=seed)
    with Track("will-it-grok", shuffles + 1) as track:
        outlook = will_it_grok(
            *task.train_set, W1, shuffles=shuffles, seed=seed,
            watch=lambda done: track.at(done, f"{done} of {shuffles + 1} label sets"),
        )  # fmt: skip
    if json:
        print_json(
            {
                "answer": outlook.answer,
                "ratio": outlook.ratio,
                "spread": outlook.spread,
                "threshold": outlook.threshold,
                "shuffles": shuffles,
            }
        )
        return
    console(to_stderr=False).print(outlook.words, soft_wrap=True)
