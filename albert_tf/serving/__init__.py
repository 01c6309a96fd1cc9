"""SavedModels that answer raw text: one function for each kind of model.

What is written needs TensorFlow and tensorflow_text, not this package. It has one
signature, `serving_default`, whose inputs and outputs stand in each docstring; batches
and texts may have any size. Ids and truncation are those of `inputs.encode`. The
weights can be loaded again with `weights.load`.
"""

from albert_tf.serving.choosing import save_multiple_choice
from albert_tf.serving.masks import save_fill_mask
from albert_tf.serving.questions import save_question_answering
from albert_tf.serving.texts import (
    save_classifier,
    save_embeddings,
    save_regressor,
    save_sentence_order,
)

__all__ = [
    "save_classifier",
    "save_embeddings",
    "save_fill_mask",
    "save_multiple_choice",
    "save_question_answering",
    "save_regressor",
    "save_sentence_order",
]
