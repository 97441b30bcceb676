"""The Trainer of Transformers, from a configuration alone: a small BERT that classifies, padded by a collator."""

import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments, set_seed
from transformers.utils import logging

logging.set_verbosity_error()
set_seed(0)


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        n = int(torch.randint(16, 64, (1,), generator=g))
        return {"input_ids": torch.randint(1, 1000, (n,), generator=g), "labels": i % 2}


def collate(samples):
    ids = torch.nn.utils.rnn.pad_sequence([s["input_ids"] for s in samples], batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": (ids != 0).long(),
        "labels": torch.tensor([s["labels"] for s in samples]),
    }


config = BertConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
model = BertForSequenceClassification(config)
arguments = TrainingArguments(
    tempfile.mkdtemp(), num_train_epochs=2, per_device_train_batch_size=32, gradient_accumulation_steps=2,
    learning_rate=3e-4, warmup_steps=2, logging_steps=4, save_strategy="no", report_to=[], disable_tqdm=True,
)  # fmt: skip
trainer = Trainer(model, arguments, train_dataset=Texts(), data_collator=collate)
trainer.remove_callback(PrinterCallback)  # it prints how long it took
trainer.train()
for row in trainer.state.log_history:
    if "loss" in row:
        print(f"loss {float(row['loss']):.4f}")
print("digest", f"{sum(p.double().sum().item() for p in model.parameters()):.9f}")
