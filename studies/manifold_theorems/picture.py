"""Draw the study's curves from its stored records: ``python -m studies.manifold_theorems.picture``."""

from __future__ import annotations

from pathlib import Path

from plotly.subplots import make_subplots

from studies._cells import read_cells
from studies._pictures import photograph
from studies.grokking_paper.rows import read_points
from studies.manifold_theorems.answer import cosine_per_distance, decay_runs
from studies.manifold_theorems.cells import cells

HERE = Path(__file__).parent
COLOURS = {"tanh": "#0072B2", "gelu": "#009E73", "relu": "#D55E00"}


def main() -> None:
    """The two theorems against the decay, and joint training against the isolated flow."""
    stored = read_cells(cells(), HERE / "records")
    titles = [
        "Largest distance from the manifold",
        "Largest cosine per distance",
        "Test accuracy, p=23",
    ]
    figure = make_subplots(rows=1, cols=3, subplot_titles=titles)
    named = set()
    for (act, lam, _), run in decay_runs(stored).items():
        for column, y in ((1, max(run["distance"])), (2, max(cosine_per_distance(run)))):
            figure.add_scatter(
                x=[lam], y=[y], row=1, col=column, mode="markers", name=act, legendgroup=act,
                showlegend=act not in named, marker={"color": COLOURS[act], "size": 7, "symbol": "circle-open"},
            )  # fmt: skip
            named.add(act)
    for name, rows in stored.items():
        if name.startswith("lag_"):
            points = read_points(rows, rows[0].arm)
            figure.add_scatter(
                x=[p.t for p in points], y=[p.test_accuracy for p in points], row=1, col=3,
                mode="lines", name=rows[0].arm, line={"width": 1.5},
            )  # fmt: skip
    figure.update_layout(template="simple_white", width=1300, height=420, margin={"t": 50, "b": 50})
    for column in (1, 2):
        figure.update_xaxes(type="log", title_text="weight decay lambda", col=column)
        figure.update_yaxes(type="log", col=column)
    figure.update_xaxes(title_text="slow time", col=3)
    photograph(figure, HERE / "curves.png")


if __name__ == "__main__":
    main()
