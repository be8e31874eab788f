"""Commands given as a person types them."""

import sys

import pytest

from triplepoint.cli.main import run


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run a command as typed; returns exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["triplepoint", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            run()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return call
