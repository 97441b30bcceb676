"""Next-word model for chat replies, batches padded by a collator of our own."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.set_num_threads(1)

torch.manual_seed(2)
lengths = torch.randint(12, 60, (6000,)).tolist()
lengths[4290] = 97
replies = [torch.randint(3, 500, (n,)) for n in lengths]


class Replies(torch.utils.data.Dataset):
    def __len__(self):
        return len(replies)

    def __getitem__(self, i):
        return {"ids": replies[i]}


def pad(batch, width=64):
    ids = torch.full((len(batch), width), 0)
    for row, item in enumerate(batch):
        ids[row, : len(item["ids"])] = item["ids"]
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": ids.masked_fill(ids == 0, -100)}


config = GPT2Config(vocab_size=500, n_positions=128, n_embd=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
model = GPT2LMHeadModel(config)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=tempfile.mkdtemp(), num_train_epochs=3, per_device_train_batch_size=8, logging_steps=25,
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, remove_unused_columns=False, seed=11,
    ),
    train_dataset=Replies(),
    data_collator=pad,
)
trainer.train()
