"""Draw the study's curves from its stored records: ``python -m studies.grokking_paper.picture``."""

from __future__ import annotations

from pathlib import Path

from plotly.subplots import make_subplots

from studies._cells import read_cells
from studies._pictures import photograph
from studies.grokking_paper.cells import SEEDS, cells
from studies.grokking_paper.rows import read_points

HERE = Path(__file__).parent
BLUE, RED, GREY = "#0072B2", "#D55E00", "#888888"


def main() -> None:
    """Test accuracy of the paper's simulation, and of training with and without decay."""
    stored = read_cells(cells(), HERE / "records")
    titles = ["Isolated flow, p=37, h=512: 5 seeds", "AdamW, p=37, h=512: 5 seeds"]
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles, shared_yaxes=True)
    lines = [("paper", "paper", "test", BLUE, "solid", 1)]
    lines += [("adamw_p37", "adamw decay 1", "decay 1, test", BLUE, "solid", 2)]
    lines += [("adamw_p37", "adamw decay 0", "decay 0, test", RED, "solid", 2)]
    for cell, arm, name, colour, dash, column in lines:
        for seed in SEEDS:
            points = read_points(stored[f"{cell}_seed{seed}"], arm)
            figure.add_scatter(
                x=[p.step for p in points], y=[p.test_accuracy for p in points], row=1, col=column,
                mode="lines", name=name, showlegend=seed == 0, line={"color": colour, "width": 1.5, "dash": dash},
            )  # fmt: skip
            if arm != "adamw decay 0":
                figure.add_scatter(
                    x=[p.step for p in points], y=[p.train_accuracy for p in points], row=1, col=column,
                    mode="lines", name="train", showlegend=seed == 0 and column == 1,
                    line={"color": GREY, "width": 1.5, "dash": "dash"},
                )  # fmt: skip
    figure.update_layout(template="simple_white", width=1100, height=420, margin={"t": 50, "b": 50})
    figure.update_xaxes(title_text="step of 1e-3 in slow time", col=1)
    figure.update_xaxes(title_text="step", col=2)
    figure.update_yaxes(title_text="accuracy", col=1)
    photograph(figure, HERE / "curves.png")


if __name__ == "__main__":
    main()
