"""The README's Python is run as it stands there."""

import pathlib
import re

README = pathlib.Path(__file__).parents[1] / "README.md"


BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def run_block_with(word):
    (code,) = [block for block in BLOCKS if word in block]
    namespace = {}
    exec(compile(code, str(README), "exec"), namespace)
    return namespace


def test_every_python_block_of_the_readme_is_run_below():
    assert len(BLOCKS) == 2


def test_the_screen_of_the_readme_prints_a_verdict(capsys):
    verdict = run_block_with("tp.screen(")["verdict"]
    assert verdict.verdict in ("keep", "replace", "unsafe", "undecided")
    assert verdict.headline in capsys.readouterr().out


def test_the_watched_loop_of_the_readme_says_the_phase_and_the_outlook(capsys):
    monitor = run_block_with("tp.GrokMonitor(")["monitor"]
    assert monitor.phase.phase == "memorised"
    out = capsys.readouterr().out
    assert monitor.phase.reason in out
    assert "expect it to generalise" in out


def test_every_file_and_command_that_the_readme_names_exists():
    text = README.read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (README.parent / target).exists(), target
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\S+)", text, re.MULTILINE):
        assert f"\n{target}:" in makefile
