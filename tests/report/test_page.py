"""Tests of triplepoint.report.page: the file as a whole."""

import dataclasses
import html.parser
import json
import math
import re
import shutil
import subprocess
import sys

import pytest

from triplepoint.errors import RunFolderError
from triplepoint.records import to_line, write_parquet
from triplepoint.report import render, write_report

VOID = {"meta", "link", "br", "hr", "img", "col", "input"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Balance(html.parser.HTMLParser):
    """Raises at the first tag that is closed out of turn."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


def check_balance(page):
    parser = Balance()
    parser.feed(own(page))
    parser.close()
    assert parser.open == []


def own(page):
    """The page without plotly's library, which is one script from its mark to the page's own script."""
    head, mark, rest = page.partition('<script id="plotly">')
    return head + mark + rest[rest.rindex("</script>\n<script>") :] if mark else page


def figures(page):
    pattern = r'<script type="application/json" data-figure="(\w+)">(.*?)</script>'
    return {name: json.loads(text) for name, text in re.findall(pattern, page, flags=re.S)}


def only(records, *, drop=(), **fields):
    keep = [r for r in records if not r.metric.startswith(tuple(drop))] if drop else records
    return [r for r in keep if all(getattr(r, name) == value for name, value in fields.items())]


def diverged(records):
    return [
        dataclasses.replace(r, value=math.nan) if r.arm == "derf" and (r.step or 0) > 200 else r
        for r in records
    ]


DEGRADED = {
    "whole": lambda m, r, v: (m, r, v),
    "one seed": lambda m, r, v: ({**m, "seeds": [0]}, only(r, seed=0), v),
    "diverged": lambda m, r, v: (m, diverged(r), v),
    "diverged from the start": lambda m, r, v: (
        m,
        [dataclasses.replace(x, value=math.inf) if x.arm == "derf" else x for x in r],
        v,
    ),
    "no saturation, no alpha": lambda m, r, v: (m, only(r, drop=("saturation", "alpha")), v),
    "no train loss": lambda m, r, v: (m, only(r, drop=("train_loss",)), v),
    "no loss": lambda m, r, v: (m, only(r, drop=("train_loss", "val_loss")), v),
    "no s1": lambda m, r, v: (m, only(r, drop=("s1",)), v),
    "no verdict": lambda m, r, v: (m, r, None),
    "no records": lambda m, r, v: (m, [], v),
    "unfinished": lambda m, r, v: ({**m, "status": "running"}, r[:50], None),
    "manifest of a run just begun": lambda m, r, v: (
        {"schema": 1, "asked": {"kind": "screen"}, "status": "running"},
        [],
        None,
    ),
    "verdict of nulls": lambda m, r, v: (
        m,
        r,
        {**dict.fromkeys(v), "candidates": [{**dict.fromkeys(v["candidates"][0]), "op": "dyt"}]},
    ),
    "manifest of nulls": lambda m, r, v: ({**dict.fromkeys(m), "asked": m["asked"]}, r, v),
}


@pytest.fixture(params=DEGRADED)
def degraded(request, screen):
    return DEGRADED[request.param](*screen)


def test_renders_whatever_is_missing(degraded):
    page = render(*degraded)
    check_balance(page)
    figures(page)
    for word in ("None", "Undefined", "nan", "NaN", "Infinity"):
        assert not re.search(rf"\b{word}\b", own(page)), word


def test_renders_a_single_training(train):
    page = render(*train)
    check_balance(page)
    assert set(figures(page)) == {"losses", "saturation", "alphas"}
    assert "verdict none" not in page and "fixed step" not in own(page)


def test_loads_nothing_from_elsewhere(screen):
    text = own(render(*screen))
    loads = r"""\bsrc\s*=|\bhref\s*=(?!"data:,")|url\(|@import|\bfetch\b|XMLHttp|import\(|https?:"""
    assert re.findall(loads, text) == []


def test_holds_the_library_once_and_stays_small(screen):
    page = render(*screen)
    assert page.count('<script id="plotly">') == 1
    assert len(page.encode()) < 6_000_000


def test_same_input_gives_same_bytes(screen):
    assert render(*screen) == render(*screen)


def test_is_the_same_in_a_new_process_and_needs_no_torch(screen, tmp_path):
    manifest, records, verdict = screen
    folder = run_folder(tmp_path, manifest, records, verdict)
    code = (
        "import sys; from triplepoint.report import write_report; write_report(sys.argv[1]);"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=120)
    assert (folder / "report.html").read_text() == render(manifest, records, verdict)


def test_user_text_is_shown_and_not_run(screen):
    manifest, records, verdict = screen
    evil = "</script><script>alert(1)</script>%{x}"
    manifest = {
        **manifest,
        "data": {"source": evil},
        "command": evil,
        "arms": {**manifest["arms"], evil: {"role": "candidate", "op": evil}},
    }
    records = [dataclasses.replace(r, arm=evil) if r.arm == "derf" else r for r in records]
    records = [
        dataclasses.replace(r, site=evil) if r.site == "transformer.ln_f" else r for r in records
    ]
    verdict = {
        **verdict,
        "headline": evil,
        "candidates": [{**verdict["candidates"][0], "why": evil, "arm": evil}],
    }
    page = render(manifest, records, verdict)
    check_balance(page)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    (name,) = {t["name"] for t in figures(page)["losses"]["data"] if "alert" in t["name"]}
    assert "<" not in name and "%{" not in name


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("keep", "Keep the norm"),
        ("replace", "Replace the norm"),
        ("unsafe", "Not safe to replace"),
        ("undecided", "Undecided"),
        ("postponed", "postponed"),
    ],
)
def test_verdict_comes_first_and_in_words(screen, word, shown):
    manifest, records, verdict = screen
    page = render(manifest, records, {**verdict, "verdict": word})
    assert f'<p class="word">{shown}</p>' in page
    assert page.index(shown) < page.index("<h2>")
    assert "Decided at the endpoint “best checkpoint”" in page


def test_sections_are_in_order(screen):
    page = own(render(*screen))
    order = [
        "candidates",
        "curves",
        "saturation",
        "alphas",
        "rules",
        "cost",
        "change",
        "plan",
        "metrics",
    ]
    assert re.findall(r'<section id="(\w+)"', page) == order


@pytest.mark.parametrize(
    ("status", "shown"), [("finished", False), ("running", True), (None, True)]
)
def test_unfinished_run_says_so(screen, status, shown):
    manifest, records, verdict = screen
    page = render({**manifest, "status": status}, records, verdict)
    assert ("This run is not finished" in page) == shown


def run_folder(path, manifest, records, verdict, *, form="records.jsonl"):
    (path / "manifest.json").write_text(json.dumps(manifest))
    if form.endswith(".jsonl"):
        (path / form).write_text("".join(f"{to_line(r)}\n" for r in records))
    else:
        write_parquet(records, path / form)
    if verdict:
        (path / "verdict.json").write_text(json.dumps(verdict))
    return path


@pytest.mark.parametrize("form", ["records.jsonl", "records.parquet"])
def test_writes_one_file_from_either_form_of_records(screen, tmp_path, form):
    folder = run_folder(tmp_path, *screen, form=form)
    before = set(folder.iterdir())
    path = write_report(folder)
    assert set(folder.iterdir()) - before == {folder / "report.html"} == {path}
    assert path.read_text(encoding="utf-8") == render(*screen)


def test_folder_without_verdict_and_records(screen, tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(screen[0]))
    assert "No verdict yet" in write_report(str(tmp_path)).read_text()


def test_refuses_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(RunFolderError, match="is not a run folder.*manifest.json"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def chromium(path, home, *options):
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    quiet += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    quiet += [f"--user-data-dir={home}", "--enable-logging=stderr", "--v=0"]
    command = [CHROMIUM, *quiet, "--virtual-time-budget=4000", *options, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("case", ["whole", "diverged"])
def test_browser_draws_every_figure_without_complaint(screen, tmp_path, case):
    page = render(*DEGRADED[case](*screen))
    # the page must not be wider than a laptop's window: what is beyond is cut off on paper
    probe = "<script>document.title = document.documentElement.scrollWidth</script></body>"
    path = tmp_path / "report.html"
    path.write_text(page.replace("</body>", probe))
    done = chromium(path, tmp_path / "home", "--window-size=1280,3000", "--dump-dom")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    for name in figures(page):
        assert re.search(rf'js-plotly-plot" id="figure-{name}"', done.stdout), name
    assert int(re.search(r"<title>(\d+)</title>", done.stdout)[1]) <= 1280
