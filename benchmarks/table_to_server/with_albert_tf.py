"""Fine-tunes on a table and serves it, with this package."""

import sys

import pandas as pd
import tensorflow as tf

from albert_tf import TextClassifier

table, pretrained, folder = sys.argv[1:]
rows = pd.read_csv(table)
train, dev = rows[:-200], rows[-200:]
model = TextClassifier.from_pretrained(
    pretrained, max_seq_length=64, batch_size=16, learning_rate=3e-5
)
model.fit(train, validation=dev, text="text", label="label", output_dir=folder)
print(model.evaluate(dev))
model.export(f"{folder}/served")
served = tf.saved_model.load(f"{folder}/served").signatures["serving_default"]
print(served(text=tf.constant(["A fine film."])))
