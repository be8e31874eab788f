"""A monitor in a Hugging Face Trainer, while a small GPT-2 with DyT learns the embedded corpus.

Run it with ``python examples/monitor_hf.py``; it writes ``runs/monitor-hf/triplepoint.jsonl``.
"""

from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import triplepoint as tp
from triplepoint.integrations.hf import MonitorCallback


def main(steps=60, folder="runs/monitor-hf"):
    """Train, and return the monitor."""
    text = tp.load_corpus(context=32)
    train, validation = (
        [{"input_ids": w, "labels": w} for w in text.windows(split, context=32, count=count)]
        for split, count in (("train", 8 * steps), ("validation", 16))
    )
    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, vocab_size=text.vocab)
    model = GPT2LMHeadModel(config)
    tp.swap_norms(model, "dyt")

    callback = MonitorCallback(every=10)
    arguments = TrainingArguments(
        folder, max_steps=steps, per_device_train_batch_size=8, learning_rate=3e-3, logging_steps=10,
        eval_strategy="steps", eval_steps=20, save_strategy="no", report_to="none", use_cpu=True,
    )  # fmt: skip
    Trainer(
        model, arguments, train_dataset=train, eval_dataset=validation, callbacks=[callback]
    ).train()
    print(f"{callback.monitor.phase.phase}: {callback.monitor.phase.reason}")
    return callback.monitor


if __name__ == "__main__":
    main()
