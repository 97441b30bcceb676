"""Headline topics with a tiny BERT, evaluated every epoch."""

import tempfile

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.set_num_threads(1)


class Headlines(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.topic = rng.integers(0, 5, count)
        self.words = rng.integers(20, 1000, (count, 24))
        self.words[:, 0] = self.topic + 3

    def __len__(self):
        return len(self.topic)

    def __getitem__(self, i):
        return {"input_ids": torch.tensor(self.words[i]), "attention_mask": torch.ones(24, dtype=torch.long),
                "labels": torch.tensor(self.topic[i])}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


config = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                    intermediate_size=128, max_position_embeddings=32, num_labels=5)
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=TrainingArguments(output_dir=tempfile.mkdtemp(), num_train_epochs=4, per_device_train_batch_size=16,
                           learning_rate=5e-4, eval_strategy="epoch", save_strategy="epoch", save_total_limit=1,
                           logging_steps=50, report_to=[], disable_tqdm=True, use_cpu=True),
    train_dataset=Headlines(4000, 1),
    eval_dataset=Headlines(400, 2),
    compute_metrics=accuracy,
)
trainer.train()
print(trainer.evaluate())
