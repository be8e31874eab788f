"""``triplepoint grok``: the geometry of grokking on modular arithmetic, two-layer nets with squared error."""

from __future__ import annotations

from typing import Annotated

import typer

SCOPE = "Scope: bias-free two-layer nets with squared error."

app = typer.Typer(
    help=f"The geometry of grokking (arXiv 2511.01938). {SCOPE}", no_args_is_help=True
)

Modulus = Annotated[int, typer.Option("--p", help="Modulus of the task; odd.")]
Hidden = Annotated[int, typer.Option(help="Width of the hidden layer.")]
Fraction = Annotated[float, typer.Option(help="Share of the table that is trained on.")]
Operation = Annotated[str, typer.Option(help="add, or another operation on pairs.")]
Seed = Annotated[int, typer.Option(help="Seed of split and initial weights.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def _problem(operation: str, p: int, fraction: float, hidden: int, seed: int):  # noqa: ANN202
    from triplepoint.grokking import initial_first_layer, pair_task

    task = pair_task(operation, p=p, fraction=fraction, seed=seed)
    return task, initial_first_layer(task.X.shape[1], hidden, seed=seed)


@app.command("fast-forward", help=f"Reach the generalising network in tens of gradients. {SCOPE}")
def fast_forward(
    p: Modulus = 23,
    hidden: Hidden = 256,
    fraction: Fraction = 0.7,
    operation: Operation = "add",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Minimise the complexity of the first layer by L-BFGS; no label of a test sample is looked at."""
    import time

    import torch

    from triplepoint.cli._output import print_json
    from triplepoint.grokking import fast_forward

    torch.set_num_threads(1)
    task, W1 = _problem(operation, p, fraction, hidden, seed)
    start = time.process_time()
    run = fast_forward(*task.train_set, W1, test=task.test_set)
    found = {
        "test_accuracy": run.test_accuracy,
        "gradients": run.gradients,
        "gradients_to_99": run.gradients_to(0.99),
        "cpu_s": round(time.process_time() - start, 3),
        "stopped": run.stopped,
        "complexity": run.complexity,
    }
    if json:
        print_json(found)
        return
    reached = found["gradients_to_99"]
    typer.echo(
        f"Test accuracy {run.test_accuracy:.1%} after {run.gradients} gradients ({run.stopped}), {found['cpu_s']} CPU s; "
        + (f"99 % after {reached}." if reached else "99 % was not reached.")
    )


@app.command("will-it-grok", help=f"Can the task generalise from this much data? {SCOPE}")
def will_it_grok(
    p: Modulus = 23,
    hidden: Hidden = 256,
    fraction: Fraction = 0.7,
    operation: Operation = "add",
    shuffles: Annotated[int, typer.Option(help="Permutations of the labels.")] = 5,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Compare the complexity that the true labels need with what shuffled ones need; no test data."""
    import torch

    from triplepoint.cli._output import print_json
    from triplepoint.grokking import will_it_grok

    torch.set_num_threads(1)
    task, W1 = _problem(operation, p, fraction, hidden, seed)
    outlook = will_it_grok(*task.train_set, W1, shuffles=shuffles, seed=seed)
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
    typer.echo(outlook.words)
