"""The model and its optimizers, written with keras.ops alone.

In reading order:

    config       sizes and rates: the keys of albert_config.json, published sizes
    layers       the glossary of shapes; embeddings, attention, feed-forward, block
    heads        what stands on the encoder, each beside its loss
    models       the encoder, and the encoder with each head
    optimizers   LAMB and AdamW as released, and the learning rate's schedule
"""
