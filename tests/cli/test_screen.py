"""The options of screen with which it goes on, learns, compares with an earlier run and explains itself."""

import json
import shutil
from pathlib import Path

import pytest

from triplepoint.cli._screening import show_explanation
from triplepoint.screening import calibrating, looks
from triplepoint.screening.judging import Judge

TEXT = "".join(f"line {i}: the quick brown fox jumps over the lazy dog {i * i}\n" for i in range(999))  # fmt: skip
SMALL = ["--model", "gpt2-0.1m", "--context", "8", "--batch", "16", "--train-tokens", "5000", "--data", "text.txt"]  # fmt: skip
SCREEN = ["screen", *SMALL, "--candidates", "dyt", "--seeds", "1", "--workers", "1"]


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)


@pytest.fixture
def sure_at_8(monkeypatch):
    """Looks at 4, 8, 16 steps, and a judge that is undecided before the second."""
    monkeypatch.setattr(looks, "FIRST", (4, 8))

    class Sure(Judge):
        def _word(self, *given):
            return ("keep" if self.steps >= 8 else "undecided"), "said so"

    monkeypatch.setattr(calibrating, "Judge", Sure)


def test_a_screen_until_it_is_sure_tells_its_looks_and_what_it_saved(command, text, sure_at_8):
    given = [*SCREEN, "--until-confident", "0.9", "--max-steps", "20", "--out", "run"]
    code, out, err = command(*given)
    assert code == 0, err
    assert "Look at step 4 of at most 20: dyt undecided." in out
    assert "Look at step 8 of at most 20: dyt keep." in out
    assert "Stopped at step 8, no candidate was undecided: 99.9 % of the steps of all arms" in out
    code, out, err = command(*given, "--json")
    found = json.loads(out)
    assert found["cost"]["looks"] == [
        {"steps": 4, "verdict": "undecided"},
        {"steps": 8, "verdict": "keep"},
    ]
    assert (found["cost"]["confidence"], found["plan"]["calibration_steps"]) == (0.9, 8)
    assert "Look at step" not in err  # it was finished before


def test_with_json_the_looks_are_told_on_stderr(command, text, sure_at_8):
    code, out, err = command(*SCREEN, "--until-confident", "0.9", "--max-steps", "4", "--json")
    assert code == 0
    assert json.loads(out)["verdict"] == "undecided"
    assert "Look at step 4 of at most 4: dyt undecided." in err


def test_the_plan_in_miniature_is_trained_beside_and_told(command, text):
    given = [*SCREEN, "--steps", "4", "--planned-steps", "6", "--out", "run", "--miniature"]
    code, out, err = command(*given)
    assert code == 0, err
    assert "The whole plan in miniature: 6 steps of 1 x 8 tokens, 316 of them different. Width 16" in " ".join(out.split())  # fmt: skip
    code, out, _ = command(*given, "--json")  # read, not trained again
    found = json.loads(out)["candidates"][0]["miniature"]
    kept = json.loads(Path("run/miniatures.json").read_text())
    assert [round(size["k"]) for size in found["sizes"]] == [16, 4]
    for size, miniature in zip(found["sizes"], kept["miniatures"], strict=True):
        assert size["delta_rel"] == miniature["candidates"]["dyt"]["best_checkpoint"]["delta_rel"]
    assert found["delta_rel"] == kept["extrapolated"]["dyt"]["best_checkpoint"]["delta_rel"]
    page = Path("run/report.html").read_text()
    assert "The plan in miniature" in page
    assert "at 1/15.8" in page


def test_a_screen_without_its_miniatures_forgets_them_and_with_them_again_trains_nothing(command, text):  # fmt: skip
    given = [*SCREEN, "--steps", "4", "--planned-steps", "6", "--out", "run"]
    assert command(*given, "--miniature")[0] == 0
    verdict = Path("run/verdict.json").read_text()
    code, out, _ = command(*given, "--miniature")
    assert code == 0 and "was finished before; nothing was trained" in out
    assert Path("run/verdict.json").read_text() == verdict  # its cost included
    assert "have one seed and the plan's rate" in verdict
    assert command(*given)[0] == 0
    assert not Path("run/miniatures.json").exists()
    assert json.loads(Path("run/verdict.json").read_text())["candidates"][0]["miniature"] is None


def test_where_every_candidate_is_unsafe_nothing_is_trained_in_miniature(command, text):
    code, out, err = command(
        *SCREEN, "--lr", "1e25", "--warmup", "1", "--steps", "5", "--planned-steps", "9", "--out", "run", "--miniature"
    )  # fmt: skip
    assert code == 0, err
    assert "UNSAFE" in out
    assert not Path("run/miniatures").exists()
    assert "Nothing was trained in miniature" in Path("run/verdict.json").read_text()


def test_a_shorter_screen_in_a_longer_ones_folder_shows_the_longer_one(command, text, monkeypatch):
    monkeypatch.setattr("triplepoint.screening.plans.SHARED_FROM", 4)
    given = [*SCREEN, "--planned-steps", 100]
    assert command(*given, "--steps", 4)[0] == 0
    assert command(*given, "--steps", 9)[0] == 0  # the same default folder
    code, out, _ = command(*given, "--steps", 4)
    assert code == 0
    assert "was finished before; nothing was trained. It is judged at step 9." in out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--until-confident", "0.9", "--steps", "5"], ["asks for one look", "--max-steps 5"]),
        (["--max-steps", "5"], ["until it is sure", "--until-confident 0.9"]),
        (["--until-confident", "1.5"], ["above 0.5 and below 1, got 1.5"]),
        (["--until-confident", "0.9", "--max-steps", "-3"], ["--max-steps must lie in the plan", "got -3"]),
        (["--until-confident", "0.9", "--planned-steps", "50", "--max-steps", "60"], ["plan of 50 steps, got 60"]),
        (["--steps", "6", "--planned-steps", "6", "--miniature"], ["the whole plan of 6 steps", "Leave --miniature out"]),
        (["--steps", "5", "--lr-grid", "--miniature"], ["they answer two questions", "Leave one of them out"]),
        (["--steps", "5", "--batch", "8", "--miniature"], ["too few to train on", "a plan this small is trained in full as cheaply"]),
        (["--steps", "5", "--learn", "nowhere"], ["nowhere does not exist", "Give the folder of finished runs"]),
        (["--steps", "5", "--baseline-run", "nowhere"], ["nowhere is not a run folder"]),
    ],
    ids=lambda value: " ".join(value) if str(value[0]).startswith("--") else "",
)  # fmt: skip
def test_options_that_contradict_each_other_end_with_status_2(command, text, words, parts):
    code, _, err = command(*SCREEN, "--out", "run", *words)
    assert code == 2
    said = " ".join(err.split())
    assert "Traceback" not in said
    assert all(part in said for part in parts), said


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a run of the baseline to step 12, one of dyt, and one that was trained on another text."""
    import sys

    from triplepoint.cli.main import run

    root = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        (root / "text.txt").write_text(TEXT)
        (root / "other.txt").write_text(TEXT[::-1])
        for out, more in (
            ("run", []),
            ("dyt", ["--op", "dyt"]),
            ("other", ["--data", "other.txt"]),
            ("wide", ["--batch", "32"]),
        ):
            words = ["train", *SMALL, "--steps", "12", "--eval-every", "4", "--out", out, *more]
            patch.setattr(sys, "argv", ["triplepoint", *words])
            with pytest.raises(SystemExit) as ended:
                run()
            assert not ended.value.code
    return root


def test_an_earlier_run_of_the_baseline_is_handed_to_the_judge(command, text, trained, monkeypatch):
    handed = []

    class Handed(Judge):
        def __init__(self, **given):
            handed.append(given)
            super().__init__(**given)

    monkeypatch.setattr(calibrating, "Judge", Handed)
    given = [*SCREEN, "--steps", 5, "--planned-steps", 12, "--out", "run"]
    assert command(*given)[0] == 0
    code, out, err = command(*given, "--baseline-run", trained / "run")
    assert code == 0, err
    assert "finished before" not in out  # judged anew, without training
    assert handed[0]["baseline_run"] is None
    assert handed[1]["baseline_run"].path == trained / "run"
    assert handed[1]["baseline_run"].last_step == 12


@pytest.mark.parametrize(
    ("folder", "planned", "parts"),
    [
        ("dyt", 12, ["another baseline's: its op was dyt, here the model's own", "Give a run of the same model"]),
        ("other", 12, ["another baseline's: its text (SHA-256) was"]),
        ("wide", 12, ["its tokens per step was 256, here 128"]),
        ("run", 13, ["ended at step 12, before the plan's 13", "--planned-steps 12"]),
        ("run", 6, ["was planned for 12 steps, here 6: its rate fell at another pace", "state its steps as the plan's"]),
        ("rate", 12, ["its peak rate was 0.003, here 0.001"]),
        ("flat", 12, ["its schedule was constant, here cosine"]),
        ("decay", 12, ["its weight decay was 0.0, here 0.1"]),
        ("warm", 12, ["its warm-up was 7, here 100"]),
        ("drop", 12, ["its dropout was 0.3, here 0.0"]),
        ("diverged", 12, ["diverged at step 7: it has no end"]),
        ("small", 12, ["its parameters was 3, here"]),
        ("unfinished", 12, ["is not finished"]),
        ("screen", 12, ["is the folder of a screen, not of one run"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_an_earlier_run_of_something_else_is_refused(
    command, text, trained, tmp_path, folder, planned, parts
):
    changes = {
        "diverged": {"outcome": "diverged", "diverged_at": 7},
        "small": {"model": {"params_total": 3}},
        "unfinished": {"status": "running"},
        "screen": {"asked": {"kind": "screen"}},
    }
    path = tmp_path / folder
    manifest = json.loads((trained / "run" / "manifest.json").read_text())
    asked = manifest["asked"]
    recipes = {"rate": {"lr": 3e-3}, "flat": {"schedule": "constant"}, "decay": {"weight_decay": 0.0}, "warm": {"warmup": 7}}  # fmt: skip
    changes |= {k: {"asked": {**asked, "recipe": {**asked["recipe"], **v}}} for k, v in recipes.items()}  # fmt: skip
    changes["drop"] = {"asked": {**asked, "dropout": 0.3}}
    shutil.copytree(trained / ("run" if folder in changes else folder), path)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **changes.get(folder, {})}))
    given = [*SCREEN, "--steps", 5, "--planned-steps", planned, "--out", tmp_path / "mine"]
    code, _, err = command(*given, "--baseline-run", path)
    assert code == 2
    said = " ".join(err.split())
    assert all(part in said for part in parts), said
    assert not (tmp_path / "mine").exists()


def test_an_explanation_tells_each_term_with_its_meaning(capsys):
    terms = [
        {"label": "speed ratio", "value": 0.5123456, "spread": 0.0321, "meaning": "learns twice as slow"},
        {"label": "epochs", "value": 12.0, "spread": None, "meaning": "of the plan"},
    ]  # fmt: skip
    show_explanation({"candidates": [{"arm": "dyt", "terms": terms}, {"arm": "derf", "terms": []}]})
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]  # fmt: skip
    assert "What the forecast for dyt was made of" in out
    assert ["speed ratio", "0.5123 ± 0.0321", "learns twice as slow"] in rows
    assert ["epochs", "12", "of the plan"] in rows
    assert "derf: nothing was forecast, so there is nothing to explain." in out


def test_a_screen_explains_itself_where_it_is_asked(command, text):
    given = [*SCREEN, "--steps", 4, "--out", "run"]
    assert "nothing was forecast" not in command(*given)[1]
    assert "dyt: nothing was forecast, so there is nothing to explain." in command(*given, "--explain")[1]  # fmt: skip
