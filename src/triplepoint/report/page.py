"""The page: gathers figures and tables, fills the template, writes the file."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from triplepoint.errors import RunFolderError
from triplepoint.records import Record, read_jsonl, read_parquet
from triplepoint.report import facts, formats, grok, map_page, phase_page, spectra, tables
from triplepoint.report.figures import to_json
from triplepoint.report.losses import loss_figure
from triplepoint.report.series import Series, index, last
from triplepoint.report.sites import alpha_figure, saturation_figure
from triplepoint.runs import atomic_path, read_arrays, read_json

WORDS = {
    "keep": "Keep the norm",
    "replace": "Replace the norm",
    "unsafe": "Not safe to replace",
    "undecided": "Undecided",
}
"""Verdict -> how the page says it."""
PAGES = {page.KIND: page for page in (grok, map_page, phase_page, spectra)}
"""Kind of run -> the module of its page, where it has a page of its own."""


def write_report(folder: Path | str) -> Path:
    """Write ``report.html`` into a run folder, from the files in it.

    Args:
        folder: A run folder, finished or not; ``verdict.json``, records and arrays may be missing.

    Returns:
        The path of the report.

    Raises:
        RunFolderError: If ``folder`` is no run folder, or a file in it is damaged or cannot be written.
    """
    folder = Path(folder)
    manifest = read_json(folder / "manifest.json")
    verdict = read_json(folder / "verdict.json") if (folder / "verdict.json").exists() else None
    path = folder / "report.html"
    try:
        arrays = _more_of(folder, _kind_of(manifest))
        text = render(manifest, _records_of(folder), verdict, arrays=arrays)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{folder} holds no run that can be reported: {type(error).__name__} {error} in its files.\n"
            "A file in it was changed by another program; run the command that made it again."
        ) from error
    with atomic_path(path) as beside:
        beside.write_text(text, encoding="utf-8")
    return path


def _records_of(folder: Path) -> list[Record]:
    for name, read in (("records.parquet", read_parquet), ("records.jsonl", read_jsonl)):
        if (folder / name).exists():
            return read(folder / name)
    return []


def _kind_of(manifest: Mapping) -> str:
    return (manifest.get("asked") or {}).get("kind") or "run"


def _more_of(folder: Path, kind: str) -> dict | None:
    """Return what a page of its own draws besides records; None for the common page."""
    if kind == map_page.KIND:
        return map_page.read(folder)
    return _arrays_of(folder) if kind in PAGES else None


def _arrays_of(folder: Path) -> dict:
    path = folder / "arrays.npz"
    return read_arrays(path) if path.exists() else {}


def render(
    manifest: Mapping,
    records: Sequence[Record],
    verdict: Mapping | None,
    *,
    arrays: Mapping | None = None,
) -> str:
    """Return the HTML of a run; the same input gives the same bytes.

    Args:
        manifest: What ``manifest.json`` holds.
        records: The run's records, in any order; sites are shown in the order they first appear in.
        verdict: What ``verdict.json`` holds; None for a single training or an unfinished screen.
        arrays: What ``arrays.npz`` holds, drawn by grokking runs and inspections; of a map, what
            :func:`triplepoint.report.map_page.read` returns.
    """
    kind = _kind_of(manifest)
    if kind in PAGES:
        filled = PAGES[kind].context(manifest, records, arrays or {})
        return _template(PAGES[kind].TEMPLATE).render(
            manifest=manifest, library=Markup(_plotly()), **filled
        )
    series = index(records, manifest.get("arms"))
    word = str((verdict or {}).get("verdict") or "No verdict")
    return _template("template.html.j2").render(
        kind=kind,
        title=_title(kind, manifest, verdict or {}, series),
        manifest=manifest,
        verdict=verdict,
        word=WORDS.get(word, word),
        endpoint=tables.ENDPOINTS.get((verdict or {}).get("criterion")),
        colours={arm.name: arm.colour for arm in series.arms},
        figures=_figures(manifest, verdict or {}, series),
        library=Markup(_plotly()),
        **_tables(manifest, verdict or {}, series),
    )


def _title(kind: str, manifest: Mapping, verdict: Mapping, series: Series) -> str:
    model = (manifest.get("model") or {}).get("name")
    on = f" on {model}" if model else ""
    candidates = [arm.name for arm in series.arms if not arm.is_baseline]
    baseline = [arm.name for arm in series.arms if arm.is_baseline]
    if kind == "screen" and candidates and baseline:
        few = (
            formats.listed(candidates) if len(candidates) <= 3 else f"{len(candidates)} candidates"
        )
        return f"{few} against {baseline[0]}{on}"
    return f"{formats.listed(candidates or baseline) or 'Training'}{on}"


def _figures(manifest: Mapping, verdict: Mapping, series: Series) -> dict[str, Markup]:
    """Return the JSON of each figure that the run has numbers for, by the name of its place."""
    found = {
        "losses": loss_figure(
            series,
            plateau=(manifest.get("plateau") or {}).get("val"),
            best_steps=_best_steps(verdict),
            fixed_step=_fixed_step(verdict, series),
            planned=_plan(manifest, verdict).get("steps"),
            unit=_loss_unit(manifest),
        ),
        "saturation": saturation_figure(series),
        "alphas": alpha_figure(series),
    }
    return {name: Markup(to_json(figure)) for name, figure in found.items() if figure}


def _endpoint(candidate: Mapping, name: str) -> Mapping:
    return (candidate.get("endpoints") or {}).get(name) or {}


def _fixed_step(verdict: Mapping, series: Series) -> int | None:
    """Return the step at which arms are compared; None where there is one arm only."""
    if len(series.arms) < 2:
        return None
    for candidate in verdict.get("candidates") or []:
        step = _endpoint(candidate, "fixed_step").get("baseline_step")
        if step is not None:
            return step
    ends = [last(series.mean("val_loss", arm)) for arm in series.arms]
    return max((end[0] for end in ends if end), default=None)


def _best_steps(verdict: Mapping) -> dict[str, int]:
    baseline = verdict.get("baseline") or {}
    steps = {baseline.get("arm"): baseline.get("best_step")}
    for candidate in verdict.get("candidates") or []:
        steps[candidate.get("arm")] = _endpoint(candidate, "best_checkpoint").get("candidate_step")
    return {arm: step for arm, step in steps.items() if arm is not None and step is not None}


def _plan(manifest: Mapping, verdict: Mapping) -> Mapping:
    plan = verdict.get("plan") or manifest.get("plan")
    return plan if isinstance(plan, Mapping) else {}


def _loss_unit(manifest: Mapping) -> str:
    unit = ((manifest.get("metrics") or {}).get("val_loss") or {}).get("unit") or "nats/token"
    return str(unit).replace("/", " per ")


def _tables(manifest: Mapping, verdict: Mapping, series: Series) -> dict:
    candidates, plan = verdict.get("candidates") or [], _plan(manifest, verdict)
    return {
        "candidates": candidates,
        "groups": tables.column_groups(candidates),
        "rows": tables.candidate_rows(verdict, verdict.get("criterion")),
        "scale": formats.share(tables.forest_scale(candidates)),
        "runs": facts.run_rows(series),
        "arms": facts.arm_rows(manifest, series),
        "rules": facts.rule_rows(verdict.get("rules")),
        "facts": facts.facts(manifest, plan),
        "plan": plan,
        "cost": facts.cost_of(verdict.get("cost")),
    }


@functools.cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)


def _resource(name: str) -> str:
    return (importlib.resources.files("triplepoint.report") / name).read_text(encoding="utf-8")


@functools.cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()
