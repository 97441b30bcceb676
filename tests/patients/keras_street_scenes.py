import keras
import tensorflow as tf

FRAME = (120, 160, 3)


def render(seed):
    """One noisy street frame and whether it shows a crossing."""
    frame = tf.random.stateless_normal((240, 320, 3), seed=tf.stack([seed, 17]))
    frame = tf.image.adjust_contrast(frame, 1.4)
    frame = tf.image.resize(frame, FRAME[:2], antialias=True)
    crossing = tf.cast(seed % 2, tf.float32)
    return frame + 0.3 * crossing, crossing


def pipeline(frames, batch):
    ds = tf.data.Dataset.range(frames).map(render)
    ds = ds.shuffle(buffer_size=frames)
    return ds.batch(batch).prefetch(1)


model = keras.Sequential(
    [
        keras.Input(FRAME),
        keras.layers.Conv2D(8, 7, strides=4, activation="relu"),
        keras.layers.Conv2D(16, 5, strides=2, activation="relu"),
        keras.layers.GlobalMaxPooling2D(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(optimizer="rmsprop", loss="binary_crossentropy", metrics=["accuracy"])
print(f"{model.count_params()} parameters")
model.fit(pipeline(20000, 32), epochs=3, verbose=2)
