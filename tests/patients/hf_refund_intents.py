import csv
import tempfile

import numpy as np
import torch
from transformers import (BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments,
                          set_seed)

set_seed(19)


class Messages(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.label = rng.integers(0, 5, n)
        self.ids = rng.integers(10, 800, (n, 32))
        self.ids[:, 3] = 10 + self.label

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return {"input_ids": torch.tensor(self.ids[i]), "labels": torch.tensor(self.label[i])}


class Table(TrainerCallback):
    """One line per evaluation for the weekly report."""

    columns = ("step", "loss", "accuracy")

    def __init__(self, path):
        self.path = path
        with open(path, "w", newline="") as f:
            csv.writer(f).writerow(self.columns)

    def row(self, step, metrics):
        return [step] + [round(metrics[name], 4) for name in self.columns[1:]]

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        with open(self.path, "a", newline="") as f:
            csv.writer(f).writerow(self.row(state.global_step, metrics))


def accuracy(p):
    return {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())}


model = BertForSequenceClassification(BertConfig(
    vocab_size=800, hidden_size=96, num_hidden_layers=3, num_attention_heads=4, intermediate_size=192,
    max_position_embeddings=40, num_labels=5))
args = TrainingArguments(
    output_dir=tempfile.mkdtemp(), num_train_epochs=6, per_device_train_batch_size=16, eval_strategy="epoch",
    logging_steps=50, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, learning_rate=3e-4)
Trainer(model=model, args=args, train_dataset=Messages(4800, 1), eval_dataset=Messages(400, 2),
        compute_metrics=accuracy, callbacks=[Table("report.csv")]).train()
