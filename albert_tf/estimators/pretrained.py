"""What any pretrained model answers, without fine-tuning."""

import sys
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import TransformerMixin

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.estimators import rows
from albert_tf.estimators.base import Model
from albert_tf.serve import rows as text_rows
from albert_tf.serve.predict import Predictor
from albert_tf.serve.settings.predict import PredictSettings
from albert_tf.tasks import registry
from albert_tf.weights.settings import ModelFileSettings


class Pretrained(Model):
    """A model for one of the kinds of `tasks.pretrained`.

    Settings are those of answers (`AnswerSettings`) that the task has, and those of a
    model's files (`ModelFileSettings`).
    """

    kind: ClassVar[str]

    @classmethod
    def setting_names(cls) -> list[str]:
        """Lists the settings of the task."""
        files = [field.name for field in flags.fields(ModelFileSettings)]
        return [*cls._options(), *files]

    @classmethod
    def _options(cls) -> tuple[str, ...]:
        options = registry.pipeline(cls.kind).options
        return ("max_seq_length", "batch_size", "runtime", *options)

    def __call__(self, data: Any) -> list[dict[str, Any]]:
        """Answers rows as `predict.py` does, a dict for each.

        Args:
            data: texts, or a table with the columns of `predictor().fields`; or the
                path of a file as `predict.py` reads it.

        Raises:
            InputError: the model has no head for it, or see `Predictor`.
        """
        predictor = self.predictor()
        fields = predictor.fields
        if rows.is_file(data):
            config = PredictSettings(model=str(self.model), input_file=str(data))
            lines = text_rows.read(config, (), fields, sys.stderr)
            asked = [text_rows.check(*line, fields) for line in lines]
        else:
            data = [data] if isinstance(data, str) else data
            asked = rows.read(data, tuple(fields), "texts")
        return list(predictor(asked))

    def predictor(self) -> Predictor:
        """Returns what answers raw texts."""
        if self.model is None:
            raise InputError(
                f"{type(self).__name__}: no model; pass a folder or a name"
            )
        given = {k: v for k, v in self._settings.items() if k in self._options()}
        return self._predictor(self.model, {"task": self.kind, **given})


class FillMask(Pretrained):
    """Names the likeliest tokens for each [MASK]; `top_k` of them."""

    kind = "fill_mask"

    def predict(self, texts: Any) -> list[list[list[dict[str, Any]]]]:
        """Returns for each text and each [MASK] the tokens with their probabilities."""
        return [answer["gaps"] for answer in self(texts)]


class Scorer(Pretrained):
    """Scores how likely texts are: ranks sentences, compares models.

    The pseudo-log-likelihood (Salazar et al. 2020), in natural logarithms.
    """

    kind = "score"

    def predict(self, texts: Any, *, per_token: bool = False) -> np.ndarray:
        """Returns the score of each text, float [n], or its mean over the tokens."""
        key = "per_token" if per_token else "score"
        return np.array([answer[key] for answer in self(texts)])


class SentenceOrder(Pretrained):
    """Judges whether two texts stand in order."""

    kind = "sentence_order"

    def predict(self, pairs: Any) -> np.ndarray:
        """Returns the probability that each pair stands in order, float [n]."""
        return np.array([answer["in_order"] for answer in self(pairs)])


class Embedder(TransformerMixin, Pretrained):
    """Turns texts into vectors; a transformer of scikit-learn's pipelines."""

    kind = "embedding"

    def fit(self, texts: Any = None, labels: Any = None) -> Self:
        """Returns itself: there is nothing to learn."""
        return self

    def transform(self, texts: Any) -> np.ndarray:
        """Returns the vector of each text, float [n, H]."""
        return np.array([answer["embedding"] for answer in self(texts)])

    def __sklearn_is_fitted__(self) -> bool:
        """Always true."""
        return True
