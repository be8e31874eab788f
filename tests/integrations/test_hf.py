"""A real run of transformers.Trainer with the monitor in it."""

import pytest
import torch
from tests.integrations.run_of import (
    ACCUMULATED,
    EVALUATED,
    LR,
    OPTIONS,
    ROWS,
    STEPS,
    plain,
    windows,
    written,
)
from tests.monitoring.test_monitor import hooks_of

transformers = pytest.importorskip("transformers")

from triplepoint.integrations.hf import MonitorCallback  # noqa: E402
from triplepoint.logbook import read_logbook  # noqa: E402
from triplepoint.surgery import swap_norms  # noqa: E402


def gpt2(op="dyt"):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, n_positions=32, vocab_size=32,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    if op is not None:
        swap_norms(model, op)
    return model.train()


def examples(tokens):
    return [{"input_ids": window, "labels": window} for window in tokens]


def trainer_of(folder, callback, *, model=None, steps=STEPS, **changes):
    train, validation = windows()
    arguments = {
        "output_dir": str(folder), "max_steps": steps, "per_device_train_batch_size": ROWS,
        "gradient_accumulation_steps": ACCUMULATED, "learning_rate": LR, "weight_decay": 0.0,
        "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "optim": "adamw_torch",
        "logging_steps": OPTIONS["every"], "logging_first_step": True, "eval_strategy": "steps",
        "eval_steps": EVALUATED, "per_device_eval_batch_size": 8, "save_strategy": "no",
        "report_to": "none", "use_cpu": True, "disable_tqdm": True,
        "dataloader_pin_memory": False, "train_sampling_strategy": "sequential", **changes,
    }  # fmt: skip
    return transformers.Trainer(
        model or gpt2(),
        transformers.TrainingArguments(**arguments),
        train_dataset=examples(train),
        eval_dataset=examples(validation),
        callbacks=[callback],
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run: its folder, its callback and its model."""
    folder, callback = tmp_path_factory.mktemp("hf"), MonitorCallback(**OPTIONS)
    trainer = trainer_of(folder, callback, logging_steps=1)
    trainer.train()
    return folder, callback, trainer


def in_a_plain_loop():
    model, (_, validation) = gpt2(), windows()

    def loss(batch, rows):
        # the trainer divides this model's loss by all labels of a step
        return model(batch, labels=batch, num_items_in_batch=rows * 17).loss

    return plain(
        model,
        lambda batch: loss(batch, ACCUMULATED * ROWS),
        lambda: loss(validation, len(validation)).item(),
    )


def test_records_equal_those_of_a_plain_loop_on_the_same_batches(run):
    folder, _, _ = run
    records, _ = written(folder)
    sampled = {1, 2, 4, 6}  # the loop records the training loss of sampled steps only
    found = [r for r in records if r.metric != "train_loss" or r.step in sampled]
    # to the last bit, in the same order
    assert found == in_a_plain_loop()


def test_four_micro_batches_are_one_record_per_optimiser_step(run):
    records, _ = written(run[0])
    rms = [(r.step, r.n) for r in records if r.metric == "input_rms" and r.site.endswith("ln_f")]
    assert rms == [(step, ACCUMULATED * ROWS * 17 * 16) for step in (1, 2, 4, 6)]
    assert [r.step for r in records if r.metric == "train_loss"] == [1, 2, 3, 4, 5, 6]
    assert [r.step for r in records if r.metric == "val_loss"] == [3, 6]


def test_the_phase_is_written_with_the_step_it_holds_from(run):
    folder, callback, _ = run
    records, phases = written(folder)
    losses = {r.step: r.value for r in records if r.metric == "val_loss"}
    assert phases == [
        (step, "generalising", f"validation loss {losses[step]:.3f}") for step in sorted(losses)
    ]
    assert callback.monitor.phase == phases[-1][1:]


def test_training_ends_as_without_the_callback_and_leaves_no_hook(run, tmp_path):
    _, _, watched = run
    alone = trainer_of(tmp_path, transformers.TrainerCallback(), logging_steps=1)
    alone.train()
    for name, weight in alone.model.state_dict().items():
        assert torch.equal(weight, watched.model.state_dict()[name]), name
    assert hooks_of(watched.model) == 0


def test_a_resumed_run_writes_what_an_uninterrupted_one_does(run, tmp_path):
    first = trainer_of(
        tmp_path, MonitorCallback(**OPTIONS), logging_steps=1, save_strategy="steps", save_steps=3
    )
    first.add_callback(StopAfter(5))
    first.train()
    assert written(tmp_path)[0][-1].step == 5
    callback = MonitorCallback(**OPTIONS)
    second = trainer_of(tmp_path, callback, logging_steps=1)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    # the steps after the checkpoint were done twice, and stand there once
    assert written(tmp_path) == written(run[0])


def test_a_new_run_in_the_same_folder_keeps_the_old_file(tmp_path):
    for _ in range(2):
        trainer_of(tmp_path, MonitorCallback(["input_rms"]), steps=1, eval_strategy="no").train()
    assert len(read_logbook(tmp_path / "triplepoint.1.jsonl")[0]) == len(written(tmp_path)[0])


@pytest.mark.parametrize("reentrant", [True, False])
def test_under_gradient_checkpointing_nothing_is_counted_twice(run, tmp_path, reentrant):
    model = gpt2()
    # its name changed in version 5
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable({"use_reentrant": reentrant})
    trainer_of(
        tmp_path, MonitorCallback(**OPTIONS), model=model, steps=1, eval_strategy="no"
    ).train()
    whole = [r for r in written(run[0])[0] if r.step == 1 and r.site is not None]
    assert [r for r in written(tmp_path)[0] if r.site is not None] == whole


@pytest.mark.slow
# the compiler itself asks inputs that are no leaves for their gradients
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_a_trainer_that_compiles_records_every_sampled_step(tmp_path):
    callback = MonitorCallback(["input_rms"], every=2)
    trainer_of(
        tmp_path, callback, model=gpt2(op=None), steps=4, eval_strategy="no",
        torch_compile=True, torch_compile_backend="eager",
    ).train()  # fmt: skip
    found = [r for r in written(tmp_path)[0] if r.metric == "input_rms"]
    assert {r.step for r in found} == {1, 2, 4}
    assert {r.site for r in found} == {
        "transformer.h.0.ln_1", "transformer.h.0.ln_2", "transformer.ln_f",
    }  # fmt: skip
    torch._dynamo.reset()


def test_a_loss_that_is_not_finite_is_called_diverged(tmp_path):
    model, callback = gpt2(), MonitorCallback(["input_rms"])
    with torch.no_grad():
        model.transformer.wte.weight.fill_(torch.nan)
    trainer_of(
        tmp_path, callback, model=model, steps=1, eval_strategy="no", logging_nan_inf_filter=False
    ).train()
    assert written(tmp_path)[1] == [(1, "diverged", "the loss is not finite at step 1")]


def test_derf_with_muon_is_warned_of(tmp_path):
    trainer = trainer_of(
        tmp_path, MonitorCallback(["alpha"]), model=gpt2("derf"), steps=1, eval_strategy="no"
    )
    matrices = [p for p in trainer.model.parameters() if p.ndim == 2]
    trainer.optimizer = torch.optim.Muon(matrices, lr=LR)
    with pytest.warns(UserWarning, match="GPT2LMHeadModel has 3 Derf and is trained with Muon"):
        trainer.train()


def test_an_evaluation_outside_of_training_is_none_of_its_business(tmp_path):
    callback = MonitorCallback()
    trainer_of(tmp_path, callback).evaluate()
    assert callback.monitor is None
    assert not (tmp_path / "triplepoint.jsonl").exists()


class StopAfter(transformers.TrainerCallback):
    """Ends a run early."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= self.step
