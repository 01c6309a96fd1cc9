"""Chooses among options in a TensorFlow graph, from raw text."""

from typing import Any

import tensorflow as tf

from albert_tf.model import models
from albert_tf.tasks import serving
from albert_tf.tasks.settings.race import RaceSettings
from albert_tf.text import in_graph
from albert_tf.text.tokenization import Tokenizer

# A blank is a gap in a question, written as underscores, into which the option goes. A
# single underscore between letters or digits is no blank. `reading.BLANK` excludes it
# by lookaround, which the regular expressions of TensorFlow (RE2) lack. So
# `_fill_blanks` replaces such underscores by a substitute while it searches blanks.
_INNER, _SUBSTITUTE = r"([\p{L}\p{N}])_([\p{L}\p{N}])", "\x1f"


def multiple_choice(
    model: models.AlbertMultipleChoice,
    tokenizer: Tokenizer,
    settings: RaceSettings | None = None,
) -> serving.ServingFunction:
    """Returns a function that chooses among options, for a SavedModel.

    Inputs for B questions with at most C options: `article` and `question`, string [B],
    and `options`, string [B, C]. Outputs: `probabilities`, float32 [B, C]; `choice`,
    int32 [B], the index of the most likely option; `answer`, string [B], the text of
    that option.

    The questions of a batch can have different numbers of options: empty options at the
    end of a row have probability 0.

    The model scores the question with each option. The option replaces each blank of
    the question (`reading.BLANK`), or follows a question without a blank. If they
    are too long, the article is truncated at its end. **As released:** the question
    with its option keeps its last `max_qa_length` tokens.

    Args:
        model: a model that scores choices.
        tokenizer: the tokenizer with the model's vocabulary.
        settings: the maximum lengths, by default as released.

    Raises:
        InputError: the model is not for multiple choice, or the lengths or the
            vocabulary do not fit it.
    """
    serving.check_class(model, models.AlbertMultipleChoice)
    longest = model.config.max_position_embeddings
    limits: Any = settings or RaceSettings()
    limits = limits.with_defaults(saved_settings=None, longest=longest)
    # Texts are not truncated here, because the last tokens of a question are needed.
    inputs = serving.TextInputs(model, tokenizer, limits.max_seq_length, truncate=False)

    def encode_rows(article, question, options):
        """Returns the model inputs of B * C rows, one for each option."""
        count = tf.shape(options)[1]
        texts = _fill_blanks(tf.repeat(question, count), tf.reshape(options, [-1]))
        choices, articles = inputs.tokenize(texts), inputs.tokenize(article)
        qa_length = tf.minimum(choices.row_lengths(), limits.max_qa_length)
        rest = limits.max_seq_length - 3 - qa_length  # 3 for [CLS] and two [SEP]
        article_length = tf.minimum(tf.repeat(articles.row_lengths(), count), rest)
        article_start = tf.repeat(articles.row_starts(), count)
        ids = serving.assemble_segments(
            tokenizer,
            (articles.values, article_start, article_length),
            (choices.values, choices.row_limits() - qa_length, qa_length),
        )
        # Segment 0 is [CLS], the article and [SEP].
        return in_graph.pad(ids, article_length + 2, tokenizer.pad_id)

    def answer(article, question, options):
        """Returns the outputs, see `multiple_choice`."""
        shape = tf.shape(options)
        batch = {
            name: tf.reshape(x, [shape[0], shape[1], tf.shape(x)[1]])
            for name, x in encode_rows(article, question, options).items()
        }
        # Empty options are padding, unless an option with text follows them. The model
        # gives probability 0 to an option whose mask is 0 everywhere.
        has_text = tf.cast(options != "", tf.int32)
        is_present = tf.cumsum(has_text, axis=1, reverse=True)[:, :, None] > 0
        batch["input_mask"] *= tf.cast(is_present, tf.int32)
        probabilities = tf.nn.softmax(model(batch)["logits"])
        choice = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        return {
            "probabilities": probabilities,
            "choice": choice,
            "answer": tf.gather(options, choice, batch_dims=1),
        }

    options = tf.TensorSpec([None, None], tf.string)
    texts = {"article": serving.TEXTS, "question": serving.TEXTS, "options": options}
    return serving.ServingFunction(model, inputs, answer, texts)


def _fill_blanks(questions: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """Fills the blanks of each question with its option, or appends the option.

    Args:
        questions: string [N].
        options: string [N], one option for each question.

    Returns:
        The questions with their options, string [N].
    """
    for _ in range(2):  # twice, because the matches in `a_b_c` overlap at `b`
        questions = tf.strings.regex_replace(questions, _INNER, rf"\1{_SUBSTITUTE}\2")
    # The parts of each question before, between and after its blanks.
    parts = tf.strings.split(tf.strings.regex_replace(questions, "_+", "_"), "_")
    parts = parts.with_values(tf.strings.regex_replace(parts.values, _SUBSTITUTE, "_"))
    row = parts.value_rowids()
    is_first = tf.pad(row[1:] != row[:-1], [[1, 0]], constant_values=True)
    is_first = is_first[: tf.size(row)]  # empty if there are no questions
    # A blank comes before each part of a question except the first one.
    prefix = tf.where(is_first, "", tf.gather(options, row))
    texts = tf.strings.reduce_join(parts.with_values(prefix + parts.values), axis=-1)
    has_blank = parts.row_lengths() > 1
    return tf.where(has_blank, texts, tf.strings.join([texts, options], " "))
