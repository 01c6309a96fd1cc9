"""An answer of a task as one graph: called here, or saved for other programs.

What is saved needs TensorFlow and tensorflow_text, not this package. It has one
signature, `serving_default`, whose inputs and outputs stand with the functions that
make an `Answer`; batches and texts may have any size. The weights can be loaded again
with `weights.load`.
"""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.serve import runtimes, saved_models
from albert_tf.tasks.answer import Answer
from albert_tf.weights import metadata


@dataclasses.dataclass(frozen=True)
class Service:
    """A model that answers raw text.

    Attributes:
        answer: of a task.
    """

    answer: Answer

    @functools.cached_property
    def compiled(self) -> Callable[..., dict[str, tf.Tensor]]:
        """`Answer.respond` in one graph; takes tensors by name."""
        specs = self.answer.specs.items()
        named = {name: tf.TensorSpec(s.shape, s.dtype, name) for name, s in specs}

        @tf.function(autograph=False)
        def serve(**texts):
            return dict(self.answer.respond(**texts))

        return serve.get_concrete_function(**named)

    def save(self, folder: str | Path) -> None:
        """Writes a SavedModel, whose one signature it is.

        Args:
            folder: is made; an older SavedModel there is replaced.

        Raises:
            InputError: the folder cannot be written, or another runtime computes the
                model.
        """
        model, graph = self.answer.model, self.answer.graph
        if isinstance(model, runtimes.Computed):
            raise InputError(
                f"{folder}: not written, another runtime computes the model; expected "
                f"one without --runtime"
            )
        root = tf.train.Checkpoint()
        root.graph = graph
        saved_models.save(
            root,
            folder,
            model=model,
            signatures={"serving_default": self.compiled},
            assets={metadata.VOCABULARY: graph.vocabulary},
        )
