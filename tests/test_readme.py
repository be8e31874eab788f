"""The README's Python is run as it stands there."""

import pathlib
import re

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_the_python_of_the_readme_runs_and_prints_a_verdict(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    namespace = {}
    exec(compile(code, str(README), "exec"), namespace)
    verdict = namespace["verdict"]
    assert verdict.verdict in ("keep", "replace", "unsafe", "undecided")
    assert verdict.headline in capsys.readouterr().out


def test_every_file_and_command_that_the_readme_names_exists():
    text = README.read_text()
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (README.parent / target).exists(), target
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\S+)", text, re.MULTILINE):
        assert f"\n{target}:" in makefile
