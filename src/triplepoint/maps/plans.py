"""The plan of a map: a TOML file, or the same as keywords."""

from __future__ import annotations

import tomllib
from typing import Any

import pydantic

from triplepoint.errors import PlanError
from triplepoint.recipes import Recipe, screening_steps
from triplepoint.sweeps.grid import (
    CellSettings,
    Override,
    canonical_op,
    expand,
    settings_from,
    told_invalid,
)


class MapPlan(pydantic.BaseModel):
    """What a map is made of; the same names in a file.

    Example:
        >>> plan = MapPlan.from_toml('''
        ... [defaults]
        ... steps = 1500
        ... [grid]
        ... unique_tokens = [20000, 100000]
        ... op = ["norm", "dyt"]
        ... [[where]]
        ... when = {unique_tokens = 20000}
        ... set = {steps = 3000}
        ... ''')
        >>> [(c.unique_tokens, c.op, c.steps) for c in plan.cells()][1:3]
        [(20000, 'dyt:recommended', 3000), (100000, 'layernorm', 1500)]
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    name: str = "map"
    """Title of the report."""
    grid: list[dict[str, Any]]
    """One or several grids (``[grid]`` or ``[[grid]]``): axis -> values, of which all combinations are cells."""
    defaults: dict[str, Any] = {}
    """Axis -> value where a grid does not name the axis."""
    where: list[Override] = []
    """``[[where]]``: cells that match ``when`` get what is in ``set``."""
    baseline: dict[str, Any] = {"op": "norm"}
    """Axis -> value of what is compared against: a cell's baseline has these, and all else as the cell."""
    data: str | None = None
    """A text file or folder, a ``.bin`` file, a ``datasets`` folder; None for the embedded corpus."""
    images: str | None = None
    """For ``vit`` sizes: a folder of CIFAR in binary form; None for scikit-learn's digits."""
    tokenizer: str | None = None
    vocab: pydantic.PositiveInt | None = None
    windows: int = pydantic.Field(default=128, ge=2)
    """Fixed windows per split; an interval over windows needs two."""
    eval_every: pydantic.PositiveInt = 50
    """Steps between evaluations; the best checkpoint is the best of these."""
    looks: bool = True
    """Whether to measure at a screen's steps as well (25, 50, 100, ...), with averaged weights."""
    checkpoint_every: pydantic.NonNegativeInt = 250
    """Steps between checkpoints: at most so many are lost when a worker is."""

    @pydantic.field_validator("grid", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @classmethod
    def from_toml(cls, text: str) -> MapPlan:
        """Read a plan from the text of a TOML file.

        Raises:
            PlanError: If it is no TOML, or an entry is unknown or not of its kind.
        """
        try:
            values = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise PlanError(
                f"The plan is not TOML: {error}.\nSee examples/map.toml for one that is."
            ) from error
        return cls.of(**values)

    @classmethod
    def of(cls, **values: Any) -> MapPlan:
        """Return a plan from keywords.

        Raises:
            PlanError: If a keyword is unknown or a value not of its kind.
        """
        try:
            return cls(**values)
        except pydantic.ValidationError as error:
            raise PlanError(told_invalid(error)) from error

    @classmethod
    def from_grid(cls, text: str, **values: Any) -> MapPlan:
        """Read a grid from a line, ``axis=value,value;axis=value``.

        Raises:
            PlanError: If a part has no ``=``, or an axis is there twice.

        Example:
            >>> len(MapPlan.from_grid("size=gpt2-0.1m;op=norm,dyt;seed=0,1").cells())
            4
        """
        grid: dict[str, list[str]] = {}
        for part in filter(None, (p.strip() for p in text.split(";"))):
            axis, equals, listed = part.partition("=")
            if not equals or axis.strip() in grid:
                raise PlanError(
                    f"'{part}' in the grid is not an axis and its values, each axis once.\n"
                    'Write e.g. --grid "size=gpt2-0.1m;op=norm,dyt:paper;seed=0,1".'
                )
            grid[axis.strip()] = [v.strip() for v in listed.split(",") if v.strip()]
        return cls.of(grid=grid, **values)

    def cells(self) -> list[CellSettings]:
        """Return the settings of all cells, in the order in which they run.

        Raises:
            PlanError: If an axis is unknown, a value not of its kind, or a cell is there twice.
        """
        self.baseline_of(settings_from(self.defaults))  # refuses an unknown axis in baseline
        return expand(self.grid, defaults=self.defaults, overrides=self.where)

    def recipe_of(self, cell: CellSettings) -> Recipe:
        """Return how a cell is trained and when it is measured.

        Raises:
            PlanError: If a value lies outside its range.
        """
        looks = screening_steps(cell.steps) if self.looks else ()
        regular = range(self.eval_every, cell.steps + 1, self.eval_every)
        return Recipe(
            steps=cell.steps,
            batch=cell.batch,
            lr=cell.lr,
            warmup=cell.warmup,
            schedule=cell.schedule,
            weight_decay=cell.weight_decay,
            seed=cell.seed,
            precision=cell.precision,
            eval_steps=tuple(sorted({*regular, *looks})),
            average_steps=looks,
            checkpoint_every=self.checkpoint_every,
        )

    def baseline_of(self, cell: CellSettings) -> CellSettings:
        """Return the cell that ``cell`` is compared with; itself where it is a baseline.

        alpha belongs to the op: where the baseline names an op, its alpha is that op's own.
        """
        own = {"alpha": None, **self.baseline} if "op" in self.baseline else dict(self.baseline)
        return settings_from({**cell.model_dump(), **own}).canonical()

    def arm_of(self, cell: CellSettings) -> str:
        """Name what is done in a cell: its op, and where it differs from the baseline otherwise.

        Example:
            >>> plan = MapPlan.from_grid("op=norm", baseline={"op": "norm", "dropout": 0.0})
            >>> plan.arm_of(settings_from({"op": "dyt:paper", "alpha": 3, "dropout": 0.1}))
            'dyt:paper, alpha=3, dropout=0.1'
        """
        against = self.baseline_of(cell)
        axes = [a for a in ("alpha", *self.baseline) if a != "op"]
        told = [
            f"{axis}={value:g}" if isinstance(value, float) else f"{axis}={value}"
            for axis in dict.fromkeys(axes)
            if (value := getattr(cell, axis)) != getattr(against, axis)
        ]
        return ", ".join([canonical_op(cell.op, cell.family), *told])
