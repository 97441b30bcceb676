import keras
import numpy as np
import tensorflow as tf

BATCH = 64

rng = np.random.default_rng(52)
records = rng.normal(size=(40_000, 24)).astype("float32")
default = (records @ rng.normal(size=24) > 1).astype("float32")
held = 4_000

train = tf.data.Dataset.from_tensor_slices((records[held:], default[held:])).shuffle(5000).batch(BATCH).prefetch(4)
check = tf.data.Dataset.from_tensor_slices((records[:held], default[:held])).batch(BATCH)

inputs = keras.Input((24,))
h = keras.layers.Dense(192, activation="relu")(inputs)
h = keras.layers.Dropout(0.2)(h)
h = keras.layers.Dense(192, activation="relu")(h)
model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(h))
model.compile(keras.optimizers.Adam(1e-3), loss="binary_crossentropy", metrics=["auc"])

history = model.fit(train, epochs=6, steps_per_epoch=1500, validation_data=check, verbose=2)
print(f"trained, last auc {history.history['auc'][-1]:.3f}")
scores = model.predict(records[:held], verbose=0)
print(f"approved {np.mean(scores < 0.5):.1%}")
