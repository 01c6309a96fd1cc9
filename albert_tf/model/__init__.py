"""The model and its optimizers, written with keras.ops alone."""
