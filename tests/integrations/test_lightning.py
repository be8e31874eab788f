"""A real run of lightning.pytorch.Trainer with the monitor in it."""

import pytest
import torch
from tests.integrations.run_of import (
    ACCUMULATED,
    EVALUATED,
    OPTIONS,
    ROWS,
    STEPS,
    adamw,
    objective_loss,
    plain,
    tiny,
    windows,
    written,
)
from tests.monitoring.test_monitor import hooks_of
from torch.utils.data import DataLoader

lightning = pytest.importorskip("lightning.pytorch")

from triplepoint.integrations.lightning import MonitorCallback  # noqa: E402
from triplepoint.surgery import swap_norms  # noqa: E402

# of lightning 2.6 with torch 2.13, and about the two cores of a test machine
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* is not empty"),
]


class Language(lightning.LightningModule):
    """The tiny model as a LightningModule."""

    def __init__(self):
        super().__init__()
        self.model = tiny()

    def training_step(self, batch, index):
        return objective_loss(self.model, batch)

    def validation_step(self, batch, index):
        self.log("val_loss", objective_loss(self.model, batch))

    def configure_optimizers(self):
        return adamw(self)


def fit(folder, callback, *, steps=STEPS, module=None, ckpt_path=None, extra=(), **changes):
    train, validation = windows()
    settings = {
        "max_steps": steps, "accumulate_grad_batches": ACCUMULATED, "default_root_dir": folder,
        "val_check_interval": EVALUATED * ACCUMULATED, "accelerator": "cpu", "logger": False,
        "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
        "callbacks": [callback, *extra], **changes,
    }  # fmt: skip
    module = module or Language()
    trainer = lightning.Trainer(**settings)
    trainer.fit(module, DataLoader(train, ROWS), DataLoader(validation, 8), ckpt_path=ckpt_path)
    return module


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, callback = tmp_path_factory.mktemp("lightning"), MonitorCallback(**OPTIONS)
    return folder, callback, fit(folder, callback)


def test_records_equal_those_of_a_plain_loop_on_the_same_batches(run):
    module, (_, validation) = Language(), windows()
    expected = plain(
        module,
        lambda batch: objective_loss(module.model, batch) / ACCUMULATED,
        lambda: objective_loss(module.model, validation).item(),
    )
    # a step's training loss is told with what was measured, not after it
    order = {"train_loss": 0}
    expected.sort(key=lambda r: (r.step, order.get(r.metric, 1)))
    # to the last bit
    assert written(run[0])[0] == expected


def test_four_micro_batches_are_one_record_per_optimiser_step(run):
    records, _ = written(run[0])
    rms = [(r.step, r.n) for r in records if r.metric == "input_rms" and r.site == "model.ln_f"]
    assert rms == [(step, ACCUMULATED * ROWS * 16 * 16) for step in (1, 2, 4, 6)]
    assert [r.step for r in records if r.metric == "val_loss"] == [3, 6]


def test_the_phase_is_written_and_no_hook_is_left(run):
    folder, callback, module = run
    _, phases = written(folder)
    assert [p.step for p in phases] == [3, 6]
    assert callback.monitor.phase == phases[-1][1:]
    assert hooks_of(module) == 0


def test_a_resumed_run_writes_what_an_uninterrupted_one_does(run, tmp_path):
    keep = lightning.callbacks.ModelCheckpoint(
        tmp_path, filename="kept-{step}", save_top_k=-1, save_on_train_epoch_end=True
    )
    fit(tmp_path, MonitorCallback(**OPTIONS), steps=5, extra=[keep], enable_checkpointing=True)
    assert written(tmp_path)[0][-1].step == 4  # the last sampled one
    checkpoint = tmp_path / "kept-step=3.ckpt"
    fit(
        tmp_path,
        MonitorCallback(**OPTIONS),
        extra=[keep],
        enable_checkpointing=True,
        ckpt_path=checkpoint,
    )
    assert written(tmp_path) == written(run[0])


def test_derf_with_muon_is_warned_of(tmp_path):
    class WithMuon(Language):
        def configure_optimizers(self):
            return torch.optim.Muon([p for p in self.parameters() if p.ndim == 2], lr=1e-3)

    module = WithMuon()
    swap_norms(module, "derf")
    with pytest.warns(UserWarning, match="WithMuon has 3 Derf and is trained with Muon"):
        fit(tmp_path, MonitorCallback(["alpha"]), module=module, steps=1)


def test_an_exception_removes_the_hooks(tmp_path):
    class Broken(Language):
        def training_step(self, batch, index):
            super().training_step(batch, index)
            raise RuntimeError("in the middle of a step")

    module = Broken()
    with pytest.raises(RuntimeError, match="in the middle"):
        fit(tmp_path, MonitorCallback(**OPTIONS), module=module)
    assert hooks_of(module) == 0


def test_precision_decides_where_an_output_rounds_to_one(tmp_path):
    callback = MonitorCallback(every=1)
    fit(tmp_path, callback, steps=1, precision="bf16-mixed")
    assert callback.monitor._options["dtype"] == torch.bfloat16
