"""Estimators for tasks that a pretrained model does without fine-tuning.

Letters of shapes: n texts or pairs, H hidden size of the model.
"""

import sys
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import TransformerMixin

from albert_tf.errors import InputError
from albert_tf.estimators import rows
from albert_tf.estimators.base import Model
from albert_tf.serve import rows as text_rows
from albert_tf.serve.predict import Predictor
from albert_tf.serve.settings import PredictSettings
from albert_tf.tasks.settings.pipeline import PipelineSettings
from albert_tf.weights.settings import ModelFileSettings


class Pretrained(Model):
    """A model for a task of `tasks.pretrained`.

    Settings are the options of the task (`PipelineSettings`) and of the model's files
    (`ModelFileSettings`).
    """

    settings_classes = (PipelineSettings, ModelFileSettings)
    reserved = ("task", "labels")
    task_type: ClassVar[str]

    def __call__(self, data: Any) -> list[dict[str, Any]]:
        """Makes predictions for rows, as `predict.py` does; returns a dict for each.

        Args:
            data: texts; a table with the columns `predictor().fields`; or the path of a
                file that `predict.py` can read.

        Raises:
            InputError: the model has no head for the task, or see `Predictor`.
        """
        predictor = self.predictor()
        if not rows.is_file(data):
            return list(predictor(self._read(data, predictor.fields)))
        config = PredictSettings(model=str(self.model), input_file=str(data))
        # Each row has its location in the file, for messages.
        located_rows = text_rows.read(config, (), predictor, log=sys.stderr)
        return list(predictor.answer_located(located_rows))

    def predictor(self) -> Predictor:
        """Opens the model for raw texts."""
        if self.model is None:
            raise InputError(f"{type(self).__name__}: no model; pass a path or name")
        options = {**self._settings, "task": self.task_type}
        return self._load_predictor(self.model, options)


class FillMask(Pretrained):
    """Predicts the `top_k` most likely tokens for each [MASK]."""

    task_type = "fill_mask"

    def predict(self, texts: Any) -> list[list[list[dict[str, Any]]]]:
        """Returns the likely tokens for each [MASK] of each text.

        Returns:
            A list for each text, which has an item for each [MASK]. An item is a list
            of dicts, each with a token and its probability.
        """
        return [answer["gaps"] for answer in self(texts)]


class Scorer(Pretrained):
    """Scores the likelihood of texts, to rank sentences or compare models.

    The score is the pseudo-log-likelihood (Salazar et al. 2020), in nats.
    """

    task_type = "score"

    def predict(self, texts: Any, *, per_token: bool = False) -> np.ndarray:
        """Returns the score of each text, float [n].

        With `per_token`, the score is divided by the number of scored tokens.
        """
        key = "per_token" if per_token else "score"
        return np.array([answer[key] for answer in self(texts)])


class SentenceOrder(Pretrained):
    """Predicts whether the two texts of a pair are in their original order."""

    task_type = "sentence_order"

    def predict(self, pairs: Any) -> np.ndarray:
        """Returns the probability that each pair is in order, float [n]."""
        return np.array([answer["in_order"] for answer in self(pairs)])


class Embedder(TransformerMixin, Pretrained):
    """Embeds texts; has `fit` and `transform`, for pipelines of scikit-learn."""

    task_type = "embedding"

    def fit(self, texts: Any = None, labels: Any = None) -> Self:
        """Returns the estimator unchanged, because there is nothing to learn."""
        return self

    def transform(self, texts: Any) -> np.ndarray:
        """Returns the vector of each text, float [n, H]."""
        return np.array([answer["embedding"] for answer in self(texts)])

    def __sklearn_is_fitted__(self) -> bool:
        """Whether scikit-learn may call `transform`: always."""
        return True
