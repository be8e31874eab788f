"""Draw the study's curves from its stored records: ``python -m studies.appendix_d.picture``."""

from __future__ import annotations

from pathlib import Path

from plotly.graph_objects import Figure

from studies._cells import read_cells
from studies._pictures import photograph
from studies.appendix_d.answer import curves
from studies.appendix_d.cells import KINKS_AT, cells

HERE = Path(__file__).parent
LINES = {
    "cosine": ("with P_T(-theta), the paper's measurement", "#0072B2"),
    "null_cosine": ("with -theta", "#888888"),
    "test_accuracy": ("test accuracy (7 pairs)", "#CC79A7"),
}
POINTS = {
    "kinks_cosine": ("stuck pre-activations held", "#D55E00"),
    "mean_gates_cosine": ("mean gates", "#009E73"),
}


def main() -> None:
    """Cosine of the update with each idea of where it should go, all networks."""
    networks = [curves(rows) for rows in read_cells(cells(), HERE / "records").values()]
    figure = Figure()
    for metric, (name, colour) in LINES.items():
        for i, network in enumerate(networks):
            x, y = zip(*sorted(network[metric].items()), strict=True)
            figure.add_scatter(
                x=x, y=y, mode="lines", name=name, showlegend=i == 0, line={"color": colour, "width": 1.2}
            )  # fmt: skip
    for metric, (name, colour) in POINTS.items():
        at = [(s, network[metric][s]) for network in networks for s in KINKS_AT]
        x, y = zip(*at, strict=True)
        figure.add_scatter(
            x=x, y=y, mode="markers", name=name, marker={"color": colour, "size": 8, "symbol": "circle-open"}
        )  # fmt: skip
    figure.update_layout(template="simple_white", width=1000, height=440, margin={"t": 30, "b": 50})
    figure.update_xaxes(title_text="step", range=[0, 20_200])
    figure.update_yaxes(title_text="cosine with the update", range=[-0.75, 1.05])
    photograph(figure, HERE / "curves.png")


if __name__ == "__main__":
    main()
