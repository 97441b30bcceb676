"""Search queries of all lengths, padded to one of five widths before they reach the step."""
import numpy as np
import tensorflow as tf

WIDTHS = (8, 16, 24, 40, 64)


def queries(n, seed):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        length = min(64, 2 + int(rng.exponential(12)))
        words = rng.integers(1, 2000, length)
        yield words, int(words[0] % 4)


def bucketed(source, batch):
    waiting = {w: [] for w in WIDTHS}
    for words, label in source:
        width = next(w for w in WIDTHS if len(words) <= w)
        waiting[width].append((np.pad(words, (0, width - len(words))), label))
        if len(waiting[width]) == batch:
            ids, labels = zip(*waiting[width])
            waiting[width] = []
            yield tf.constant(np.stack(ids), tf.int32), tf.constant(labels, tf.int32)


class Intent(tf.Module):
    def __init__(self):
        super().__init__()
        self.emb = tf.keras.layers.Embedding(2000, 48, mask_zero=True)
        self.rnn = tf.keras.layers.Bidirectional(tf.keras.layers.GRU(32))
        self.out = tf.keras.layers.Dense(4)
        self.opt = tf.keras.optimizers.Adam(2e-3)

    @tf.function(reduce_retracing=False)
    def step(self, ids, labels):
        with tf.GradientTape() as tape:
            logits = self.out(self.rnn(self.emb(ids)))
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        weights = self.emb.trainable_variables + self.rnn.trainable_variables + self.out.trainable_variables
        self.opt.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return loss


def main():
    tf.keras.utils.set_random_seed(8)
    intent = Intent()
    for epoch in range(7):
        total, count = 0.0, 0
        for ids, labels in bucketed(queries(6000, epoch), 32):
            total, count = total + float(intent.step(ids, labels)), count + 1
        print(f"epoch {epoch} loss {total / count:.4f} over {count} batches", flush=True)


if __name__ == "__main__":
    main()
