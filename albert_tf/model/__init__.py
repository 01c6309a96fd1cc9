"""The model and its optimizers, written with keras.ops only.

In reading order:

    config       sizes and dropout rates, as in albert_config.json; published models
    layers       the glossary of shapes; embeddings, attention, feed-forward, block
    heads        the heads on the encoder, each with its loss
    models       the encoder, and the encoder with each head
    optimizers   LAMB and AdamW as released, and the schedule of the learning rate
"""
