"""Star rating of product reviews, trained with a large effective batch."""

import tempfile

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments

LENGTH = 192


class Reviews(torch.utils.data.Dataset):
    def __init__(self, count):
        torch.manual_seed(count)
        self.words = torch.randint(5, 3000, (count, LENGTH))
        self.stars = torch.randint(0, 5, (count,))

    def __len__(self):
        return len(self.stars)

    def __getitem__(self, item):
        return dict(input_ids=self.words[item], attention_mask=torch.ones(LENGTH, dtype=torch.long),
                    labels=self.stars[item])


def main():
    config = DistilBertConfig(vocab_size=3000, dim=128, hidden_dim=512, n_layers=4, n_heads=8,
                              max_position_embeddings=LENGTH, num_labels=5)
    model = DistilBertForSequenceClassification(config)
    print(f"{model.num_parameters() / 1e6:.1f}M parameters")
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="stars"),
        per_device_train_batch_size=256,
        gradient_accumulation_steps=4,
        max_steps=10,
        learning_rate=3e-4,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=model, args=args, train_dataset=Reviews(12000))
    trainer.train()


if __name__ == "__main__":
    main()
