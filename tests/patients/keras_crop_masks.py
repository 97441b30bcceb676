"""Field-boundary segmentation with a look at the validation masks after every epoch."""

import keras
import numpy as np
from keras import layers

SIZE = 64


def synthetic_fields(count, seed):
    rng = np.random.default_rng(seed)
    photos = rng.normal(0, 0.2, size=(count, SIZE, SIZE, 3)).astype("float32")
    masks = np.zeros((count, SIZE, SIZE, 1), "float32")
    for i in range(count):
        top, left = rng.integers(4, 30, 2)
        h, w = rng.integers(10, 28, 2)
        photos[i, top : top + h, left : left + w] += 0.7
        masks[i, top : top + h, left : left + w] = 1
    return photos, masks


class MaskGallery(keras.callbacks.Callback):
    """Collects what the network draws, for the animation at the end."""

    def __init__(self, photos):
        super().__init__()
        self.photos = photos
        self.frames = []

    def on_epoch_end(self, epoch, logs=None):
        drawn = self.model.predict(self.photos, batch_size=64, verbose=0)
        self.frames.append(drawn)
        print(f"epoch {epoch}: mean mask area {drawn.mean():.3f}")


train_x, train_y = synthetic_fields(96, 1)
check_x, check_y = synthetic_fields(1400, 2)

network = keras.Sequential(
    [
        keras.Input((SIZE, SIZE, 3)),
        layers.Conv2D(8, 3, padding="same", activation="relu"),
        layers.Conv2D(8, 3, padding="same", activation="relu"),
        layers.Conv2D(1, 1, activation="sigmoid"),
    ]
)
network.compile("adam", "binary_crossentropy")
gallery = MaskGallery(check_x)
network.fit(train_x, train_y, epochs=120, batch_size=32, callbacks=[gallery], verbose=2)
np.save("frames.npy", np.stack(gallery.frames))
