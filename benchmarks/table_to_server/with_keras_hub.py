"""Fine-tunes on a table and serves it, with KerasHub."""

import sys

import keras
import keras_hub
import pandas as pd
import tensorflow as tf

table, pretrained, folder = sys.argv[1:]
rows = pd.read_csv(table)
names = sorted(rows["label"].unique())
labels = rows["label"].map(names.index)
texts = rows["text"]
train = tf.data.Dataset.from_tensor_slices((texts[:-200], labels[:-200]))
dev = tf.data.Dataset.from_tensor_slices((texts[-200:], labels[-200:])).batch(16)
steps = 3 * -(-len(train) // 16)
preprocessor = keras_hub.models.AlbertTextClassifierPreprocessor.from_preset(
    pretrained, sequence_length=64
)
model = keras_hub.models.AlbertTextClassifier.from_preset(
    pretrained, num_classes=len(names), preprocessor=preprocessor
)
rate = keras.optimizers.schedules.CosineDecay(
    0.0, steps - steps // 10, warmup_target=3e-5, warmup_steps=steps // 10
)
model.compile(
    keras.optimizers.AdamW(rate, weight_decay=0.01),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
    jit_compile=False,
)
best = f"{folder}/best.weights.h5"
model.fit(
    train.shuffle(10_000).batch(16),
    validation_data=dev,
    epochs=3,
    callbacks=[
        keras.callbacks.BackupAndRestore(f"{folder}/backup"),
        keras.callbacks.ModelCheckpoint(
            best, "val_accuracy", save_best_only=True, save_weights_only=True
        ),
    ],
)
model.load_weights(best)
print(model.evaluate(dev, return_dict=True))


@tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
def _answer(text):
    inputs, _, _ = keras.utils.unpack_x_y_sample_weight(preprocessor(text))
    probabilities = tf.nn.softmax(model(inputs))
    label = tf.gather(names, tf.argmax(probabilities, axis=-1))
    return {"label": label, "probabilities": probabilities}


archive = keras.export.ExportArchive()
archive.track(model)
archive.add_endpoint("serving_default", _answer)
archive.write_out(f"{folder}/served")
served = tf.saved_model.load(f"{folder}/served").signatures["serving_default"]
print(served(text=tf.constant(["A fine film."])))
