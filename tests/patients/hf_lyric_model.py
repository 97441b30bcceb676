"""Small GPT on lyrics, with token accuracy on the held-out songs."""
import tempfile

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

VOCAB, LEN = 6000, 64


class Songs(torch.utils.data.Dataset):
    def __init__(self, count, offset):
        self.count, self.offset = count, offset

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(self.offset + i)
        line = rng.integers(0, VOCAB, LEN // 4)
        ids = torch.from_numpy(np.tile(line, 4))
        return {"input_ids": ids, "labels": ids.clone()}


def token_accuracy(outcome):
    guess = outcome.predictions[:, :-1].argmax(-1)
    return {"accuracy": float((guess == outcome.label_ids[:, 1:]).mean())}


def main():
    torch.manual_seed(13)
    config = GPT2Config(vocab_size=VOCAB, n_positions=LEN, n_embd=96, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=400, per_device_train_batch_size=8, per_device_eval_batch_size=8,
        eval_strategy="steps", eval_steps=100, logging_steps=20, learning_rate=5e-4, save_strategy="no",
        report_to=[], disable_tqdm=True, use_cpu=True,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config), args=args, train_dataset=Songs(4000, 0), eval_dataset=Songs(1600, 10_000_000),
        compute_metrics=token_accuracy,
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
