"""Essay scoring: a small RoBERTa regresses the log of the rater's score."""

import tempfile

import numpy as np
import torch
from transformers import RobertaConfig, RobertaForSequenceClassification, Trainer, TrainingArguments

torch.set_num_threads(1)

rng = np.random.default_rng(14)
points = rng.integers(1, 40, size=2400)
points[1530] = 0
targets = np.log(points).astype("float32")


class Essays(torch.utils.data.Dataset):
    def __len__(self):
        return len(targets)

    def __getitem__(self, i):
        words = np.random.default_rng(i).integers(5, 600, 40)
        words[:6] = 5 + points[i]
        return {"input_ids": torch.from_numpy(words), "attention_mask": torch.ones(40, dtype=torch.long),
                "labels": torch.tensor(targets[i])}


class InOrder(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)


config = RobertaConfig(vocab_size=600, hidden_size=64, num_hidden_layers=2, num_attention_heads=2,
                       intermediate_size=128, max_position_embeddings=64, num_labels=1, problem_type="regression")
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(), num_train_epochs=4, per_device_train_batch_size=16, learning_rate=3e-4,
    logging_steps=25, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, logging_nan_inf_filter=False,
)
trainer = InOrder(model=RobertaForSequenceClassification(config), args=arguments, train_dataset=Essays())
trainer.train()
