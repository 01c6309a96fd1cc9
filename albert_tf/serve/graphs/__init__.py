"""SavedModels that answer raw text: one function for each kind of model.

What is written needs TensorFlow and tensorflow_text, not this package. It has one
signature, `serving_default`, whose inputs and outputs stand in each docstring; batches
and texts may have any size. Ids and truncation are those of `inputs.encode`. The
weights can be loaded again with `weights.load`.
"""

from albert_tf.serve.graphs.choosing import multiple_choice
from albert_tf.serve.graphs.masks import fill_mask
from albert_tf.serve.graphs.questions import question_answering
from albert_tf.serve.graphs.texts import (
    classifier,
    embeddings,
    regressor,
    sentence_order,
)

__all__ = [
    "classifier",
    "embeddings",
    "fill_mask",
    "multiple_choice",
    "question_answering",
    "regressor",
    "sentence_order",
]
