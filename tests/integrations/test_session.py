"""Tests of triplepoint.integrations.session, and of the examples."""

import importlib.util
import pathlib
import sys

import pytest
import torch
from tests.monitoring.test_monitor import hooks_of
from torch import nn

from triplepoint import Monitor
from triplepoint.errors import MissingExtraError, UnknownNameError
from triplepoint.integrations.session import Session
from triplepoint.logbook import read_logbook
from triplepoint.ops import Derf, DyT

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.fixture
def net():
    return nn.Sequential(nn.LayerNorm(4))


def go(session, net, steps):
    for step in steps:
        net(torch.full((2, 4), float(step)))
        session.observe(step, train_loss=1.0 / step, val_loss=2.0)


def test_a_session_in_a_plain_loop_writes_what_the_monitor_sees(net, tmp_path):
    with Session(Monitor(net), tmp_path) as session:
        go(session, net, range(1, 4))
    records, phases = read_logbook(tmp_path / "triplepoint.jsonl")
    assert [r.value for r in records if r.metric == "input_rms"] == [1.0, 2.0, 3.0]
    assert phases == [(1, "generalising", "validation loss 2.000")]
    assert hooks_of(net) == 0


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_session_from_a_step_goes_on_as_if_it_had_never_ended(net, tmp_path, every):
    options = {"every": every, "plateau": 3.0}
    with Session(Monitor(net, **options), tmp_path / "whole") as whole:
        go(whole, net, range(1, 9))
    with Session(Monitor(net, **options), tmp_path / "parts") as parts:
        go(parts, net, range(1, 7))
    with Session(Monitor(net, **options), tmp_path / "parts", step=4) as parts:
        go(parts, net, range(5, 9))
    assert read_logbook(parts.path) == read_logbook(whole.path)
    assert parts.monitor.phase == whole.monitor.phase


def test_another_rank_observes_and_writes_nothing(net, tmp_path):
    with Session(Monitor(net), tmp_path, step=2, writes=False) as session:
        go(session, net, (3, 4))
    assert session.monitor.phase.phase == "generalising"
    assert list(tmp_path.iterdir()) == []


MUON = (
    r"Sequential has 1 Derf and is trained with Muon, which are reported to go badly together \(arXiv 2604\.01563\)\."
    r"\nTry DyT, or AdamW"
)


class MuonWithAuxAdam(torch.optim.AdamW):
    """A variant of another library, by its name."""


@pytest.mark.parametrize("kind", [torch.optim.Muon, MuonWithAuxAdam])
def test_derf_with_muon_is_warned_of(tmp_path, kind):
    model = nn.Sequential(nn.Linear(4, 4), Derf(4))
    with pytest.warns(UserWarning, match=MUON):
        Session(Monitor(model), tmp_path, optimizers=[kind([model[0].weight])]).close()


@pytest.mark.parametrize(("op", "kind"), [(DyT, torch.optim.Muon), (Derf, torch.optim.AdamW)])
def test_other_pairs_of_op_and_optimizer_are_not_warned_of(tmp_path, op, kind):
    model = nn.Sequential(nn.Linear(4, 4), op(4))
    Session(Monitor(model), tmp_path, optimizers=[kind([model[0].weight])]).close()


@pytest.mark.parametrize(
    ("module", "package"), [("hf", "transformers"), ("lightning", "lightning.pytorch")]
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, module, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"triplepoint.integrations.{module}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"'{package}'.*\n.*triplepoint\[{module}\]"):
        importlib.import_module(f"triplepoint.integrations.{module}")


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated")
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*pin_memory")
@pytest.mark.parametrize(
    ("name", "package"), [("plain", "torch"), ("hf", "transformers"), ("lightning", "lightning")]
)
def test_the_examples_run_and_write_the_phase(name, package, tmp_path, monkeypatch, capsys):
    pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"monitor_{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monitor = example.main(steps=20)
    records, phases = read_logbook(f"runs/monitor-{name}/triplepoint.jsonl")
    assert {"train_loss", "val_loss", "saturation@2", "alpha"} <= {r.metric for r in records}
    assert {r.step for r in records if r.metric == "alpha"} == {1, 10, 20}
    assert phases[-1][1:] == monitor.phase
    assert f"{monitor.phase.phase}: {monitor.phase.reason}" in capsys.readouterr().out


def test_a_session_that_cannot_begin_leaves_no_hooks_and_no_open_file(net, tmp_path):
    with pytest.raises(UnknownNameError, match="There is no tracker 'nope'.\nKnown: tensorboard"):
        Session(Monitor(net), tmp_path, trackers=["nope"])
    assert hooks_of(net) == 0
