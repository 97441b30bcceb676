"""Triage of intake forms: padded per batch, stopped when the held-out loss no longer falls."""
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from transformers import (DistilBertConfig, DistilBertForSequenceClassification, EarlyStoppingCallback, Trainer,
                          TrainingArguments, set_seed)


@dataclass
class PadToLongest:
    pad: int = 0

    def __call__(self, rows):
        width = max(len(r["ids"]) for r in rows)
        ids = torch.full((len(rows), width), self.pad)
        for i, r in enumerate(rows):
            ids[i, : len(r["ids"])] = torch.as_tensor(r["ids"])
        return {"input_ids": ids, "attention_mask": (ids != self.pad).long(),
                "labels": torch.tensor([r["urgency"] for r in rows])}


def forms(n, seed):
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        urgency = int(rng.integers(3))
        ids = rng.integers(5, 500, rng.integers(12, 60))
        if rng.random() < 0.7:
            ids[1] = 5 + urgency
        out.append({"ids": ids, "urgency": urgency})
    return out


def main():
    set_seed(27)
    model = DistilBertForSequenceClassification(DistilBertConfig(
        vocab_size=500, dim=64, n_layers=2, n_heads=2, hidden_dim=128, max_position_embeddings=64, num_labels=3))
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(), num_train_epochs=60, per_device_train_batch_size=16, learning_rate=1e-3,
        eval_strategy="epoch", save_strategy="epoch", save_total_limit=1, load_best_model_at_end=True,
        metric_for_best_model="eval_loss", logging_steps=20, remove_unused_columns=False, report_to=[],
        disable_tqdm=True, use_cpu=True)
    trainer = Trainer(model=model, args=args, train_dataset=forms(2210, 1), eval_dataset=forms(203, 2),
                      data_collator=PadToLongest(), callbacks=[EarlyStoppingCallback(early_stopping_patience=3)])
    trainer.train()
    print("best", trainer.state.best_metric)


if __name__ == "__main__":
    main()
