"""Routes support tickets to one of six teams with a small BERT trained from scratch."""

import tempfile

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.set_num_threads(1)


class Tickets(Dataset):
    def __init__(self, size=3000, length=48, vocab=800, teams=6):
        g = torch.Generator().manual_seed(0)
        self.team = torch.randint(0, teams, (size,), generator=g)
        self.tokens = torch.randint(10, vocab, (size, length), generator=g)
        self.tokens[:, 3] = self.team + 2

    def __len__(self):
        return len(self.team)

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "attention_mask": torch.ones_like(self.tokens[i]), "labels": self.team[i]}


class RouterTrainer(Trainer):
    """Keeps an eye on how much two dropout passes disagree while training."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.disagreement = []

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        if self.state.global_step % 8 == 0:
            twin = model(**inputs)
            gap = F.kl_div(twin.logits.log_softmax(-1), outputs.logits.detach().softmax(-1), reduction="batchmean")
            self.disagreement.append(gap)
            print(f"step {self.state.global_step}: loss {outputs.loss.item():.3f}, disagreement {gap.item():.4f}")
        return (outputs.loss, outputs) if return_outputs else outputs.loss


config = BertConfig(vocab_size=800, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                    intermediate_size=256, max_position_embeddings=64, num_labels=6)
model = BertForSequenceClassification(config)
args = TrainingArguments(
    output_dir=tempfile.mkdtemp(), num_train_epochs=20, per_device_train_batch_size=12, learning_rate=5e-4,
    logging_steps=100, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
)
trainer = RouterTrainer(model=model, args=args, train_dataset=Tickets())
trainer.train()
print(trainer.state.log_history[-1])
