"""The README and the guide: their Python is run as it stands there, and the Korean README says what the English one does."""

import pathlib
import re
import warnings
from itertools import zip_longest

import pytest

from triplepoint.logbook import read_logbook

ROOT = pathlib.Path(__file__).parents[1]
ENGLISH, KOREAN, GUIDE = (ROOT / name for name in ("README.md", "README.ko.md", "docs/guide.md"))
PAGES = [ENGLISH, KOREAN, GUIDE]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = [
    code
    for page in (ENGLISH, GUIDE)
    for language, code in FENCED.findall(page.read_text())
    if language == "python"
]


def run_block_with(word):
    (code,) = [block for block in BLOCKS if word in block]
    namespace = {}
    exec(compile(code, word, "exec"), namespace)
    return namespace


def test_every_python_block_is_run_below():
    assert len(BLOCKS) == 6


def test_the_screen_of_the_readme_prints_a_verdict(capsys):
    verdict = run_block_with('candidates=["dyt:recommended", "derf"]')["verdict"]
    assert verdict.verdict in ("keep", "replace", "unsafe", "undecided")
    assert verdict.headline in capsys.readouterr().out


def test_a_hugging_face_model_and_one_of_ones_own_are_screened(capsys):
    pytest.importorskip("transformers")
    verdict = run_block_with("LlamaForCausalLM(llama)")["verdict"]
    out = capsys.readouterr().out
    assert verdict.headline in out
    assert "RMSNorm" in out and "LayerNorm" in out


def test_the_watched_loop_of_the_guide_says_the_phase_and_the_outlook(capsys):
    monitor = run_block_with("tp.GrokMonitor(")["monitor"]
    assert monitor.phase.phase == "memorised"
    out = capsys.readouterr().out
    assert monitor.phase.reason in out
    assert "expect it to generalise" in out


@pytest.mark.parametrize(
    ("word", "needs", "folder"),
    [
        ("with Session(", "torch", "runs/plain"),
        ("TrainingArguments(", "transformers", "runs/hf"),
        ("LightningModule", "lightning.pytorch", "runs/lightning"),
    ],
)
def test_the_watched_loops_of_the_guide_write_what_they_saw(
    tmp_path, monkeypatch, word, needs, folder
):
    with warnings.catch_warnings():  # the other libraries' own
        warnings.simplefilter("ignore")
        pytest.importorskip(needs)
        monkeypatch.chdir(tmp_path)
        run_block_with(word)
    records, _ = read_logbook(tmp_path / folder / "triplepoint.jsonl")
    sampled = [r for r in records if r.metric == "saturation@2"]
    # every tenth step and the first, at each of five sites
    assert [r.step for r in sampled] == [1] * 5 + [10] * 5 + [20] * 5
    assert any(r.metric == "train_loss" for r in records)


def sections(page):
    """Return the sections of a page, the part before the first heading first."""
    return re.split(r"^## ", page.read_text(), flags=re.MULTILINE)


def anchors(page):
    """Return the headings of a page as GitHub links to them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_heading_and_command_that_a_page_names_exists(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, heading = target.partition("#")
        found = page.parent / file if file else page
        assert found.exists(), target
        assert not heading or heading in anchors(found), target
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\S+)", text, re.MULTILINE):
        assert f"\n{target}:" in makefile


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_that_a_page_shows_is_one(page):
    """By the help pages of the commands that its blocks show."""
    import typer

    from triplepoint.cli.main import app

    for language, code in FENCED.findall(page.read_text()):
        for line in code.splitlines() if language == "sh" else ():
            words = line.partition(" # ")[0].split()
            command = typer.main.get_command(app)
            if words[0] != "triplepoint":
                continue
            rest = words[1:]
            while hasattr(command, "commands"):
                command = command.commands[rest.pop(0)]
            known = {name for parameter in command.params for name in parameter.opts}
            assert {word for word in rest if word.startswith("--")} <= known, line


# Korean counts in digits where English does in words, so only what is measured is compared.
FIGURE = re.compile(r"[+-]?\d+(?:\.\d+)? %|\[[+-][\d.]+, [+-][\d.]+\]|\d\.\d\d")


def test_both_languages_have_the_same_code_pictures_and_figures_section_by_section():
    for english, korean in zip_longest(sections(ENGLISH), sections(KOREAN)):
        title = english.splitlines()[0]
        assert FENCED.findall(english) == FENCED.findall(korean), title
        pictures = [re.findall(r"!\[[^]]*\]\(([^)]+)\)", text) for text in (english, korean)]
        assert pictures[0] == pictures[1], title
        figures = [sorted(FIGURE.findall(text)) for text in (english, korean)]
        assert figures[0] == figures[1], title


def test_the_rules_record_is_marked_and_its_counts_are_the_same_in_both_languages():
    marked = re.compile(r"<!-- record:.*?-->(.*?)<!-- end of record -->", re.DOTALL)
    (english,), (korean,) = (marked.findall(page.read_text()) for page in (ENGLISH, KOREAN))
    counts = [sorted(re.findall(r"\d+(?:\.\d+)?", text)) for text in (english, korean)]
    assert counts[0] == counts[1]


def test_the_rules_record_is_what_the_shipped_rule_book_says():
    """After a new rule book: ``python -m studies.screening_benchmark --from-records`` prints the marked numbers."""
    from triplepoint.screening.rulebook import shipped

    text = " ".join(ENGLISH.read_text().split())
    book = shipped()
    fixed, best = (book.track(500, end) for end in ("fixed_step", "best_checkpoint"))
    clear = [c.truth["best_checkpoint"] for c in book.cells if c.truth["best_checkpoint"].clear]
    wins = sum(truth.winner == "candidate" for truth in clear)
    assert f"{len(book.cells)} cells in {len({c.setting.group for c in book.cells})} groups" in text
    assert f"at the fixed last step {fixed.right} of {fixed.answered} answers right" in text
    assert f"At the best checkpoint {best.right} of {best.answered}, where" in text
    assert f"is right in {len(clear) - wins} of {len(clear)} and only {wins} wins" in text
