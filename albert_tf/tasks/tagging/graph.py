"""Divides sentences into windows and finds spans in raw text, in a TensorFlow graph.

Each word is tokenized separately, and a word without a token becomes [UNK]. The label
of a word is predicted at its first token. A sentence longer than an input is divided
into windows, which overlap by half. Each word is labeled in the window in which it has
the most context.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.model.models import AlbertTokenClassifier
from albert_tf.tasks import serving
from albert_tf.tasks.pipelines import check_labels
from albert_tf.tasks.tagging.reading import INSIDE, has_entities
from albert_tf.text import in_graph
from albert_tf.text.tokenization import Tokenizer

# The results of `_choose_labels`.
_LABEL_SPECS = {
    "label": tf.TensorSpec([None, None], tf.int32),
    "probability": tf.TensorSpec([None, None], tf.float32),
}


def divide(
    tokens: tf.RaggedTensor, sentences: tf.RaggedTensor, size: int, tokenizer: Tokenizer
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Divides S sentences with N words into W windows.

    Args:
        tokens: int32 [N, None], the tokens of each word.
        sentences: [S, None], any value for each word; only the row lengths are used.
        size: maximum number of tokens of a window without [CLS] and [SEP].
        tokenizer: the tokenizer that made the tokens.

    Returns:
        The ids of the windows, int32 [W, None], in the order of the sentences; and for
        each word, the index of its window among all windows and the position of its
        first token in the window, where [CLS] has position 0, int64 [N] each.
    """
    is_empty = tf.cast(tokens.row_lengths() == 0, tf.int64)
    tokens = in_graph.assemble(
        [
            (tokens.values, tokens.row_starts(), tokens.row_lengths()),
            in_graph.make_id_part(tokenizer.unk_id, is_empty),
        ]
    )
    # For each word, the index of its sentence.
    word_sentence = sentences.value_rowids()
    # For each sentence: its number of tokens, the index of its first token among all
    # tokens, its number of windows, the index of its first window among all windows.
    length = tf.math.unsorted_segment_sum(
        tokens.row_lengths(), word_sentence, sentences.nrows()
    )
    start = tf.cumsum(length, exclusive=True)
    stride = max(1, size // 2)
    num_windows = 1 + (tf.maximum(length - size, 0) + stride - 1) // stride
    first_window = tf.cumsum(num_windows, exclusive=True)
    # For each word: the position of its first token in the sentence, and the index of
    # its window among the windows of the sentence. It is the window whose middle is
    # nearest to the word, or the first one of two such windows.
    position = tokens.row_starts() - tf.gather(start, word_sentence)
    word_window = (position - (size - 1 + stride) // 2 + stride - 1) // stride
    last_window = tf.gather(num_windows, word_sentence) - 1
    word_window = tf.clip_by_value(word_window, 0, last_window)
    # For each window: its sentence, and the tokens of the sentence that it contains.
    sentence = tf.repeat(tf.range(sentences.nrows()), num_windows)
    begin = tf.ragged.range(num_windows).values * stride
    window_length = tf.minimum(tf.gather(length, sentence) - begin, size)
    segment = (tokens.values, tf.gather(start, sentence) + begin, window_length)
    ids = serving.assemble_segments(tokenizer, segment)
    window = tf.gather(first_window, word_sentence) + word_window
    return ids, window, position - word_window * stride + 1


def tag_texts(
    model: AlbertTokenClassifier,
    tokenizer: Tokenizer,
    *,
    labels: Sequence[str],
    max_seq_length: int,
) -> serving.ServingFunction:
    """Returns a function that finds spans in texts of any length, for a SavedModel.

    Input: `text`, string [B], for B texts. `in_graph.split_words` divides them into
    words. Outputs: `types` and `texts`, string [B, S]; `begins` and `ends`, int32 [B,
    S], characters of the text; `probabilities`, float32 [B, S], the mean over a span's
    words. S is the maximum number of spans of a text; texts with fewer spans are filled
    with "", -1 and 0. A span is an entity, or a word if the labels do not mark
    entities. As in seqeval, a label I-TYPE begins an entity if the word before has
    another type.

    Args:
        model: the model that labels tokens.
        tokenizer: the tokenizer with the model's vocabulary.
        labels: the labels, in the order of the model's outputs.
        max_seq_length: maximum number of tokens of an input.

    Raises:
        InputError: the model does not label tokens, or the labels, the length or the
            vocabulary do not fit it.
    """
    serving.check_class(model, AlbertTokenClassifier)
    check_labels(labels, model.head.num_labels)
    # Texts are not truncated here, because a text can have several windows.
    inputs = serving.TextInputs(model, tokenizer, max_seq_length, truncate=False)
    are_entities = has_entities(labels)
    names = [label[2:] if are_entities else label for label in labels]  # "" for O
    types = sorted(set(names) - ({""} if are_entities else set()))
    # For each label: the index of its type in `types` (-1 for O), and whether it always
    # begins a span.
    type_of = [types.index(name) if name in types else -1 for name in names]
    begins_span = [not label.startswith(INSIDE) for label in labels]

    def answer(text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs, see `tag_texts`."""
        # Each invalid byte becomes the character U+FFFD, so offsets count characters.
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        words, begins, ends = in_graph.split_words(text)
        tokens = inputs.tokenize(words.values)
        ids, window, position = divide(tokens, words, max_seq_length - 2, tokenizer)
        batch = in_graph.pad(ids, ids.row_lengths(), tokenizer.pad_id)
        predicted = serving.map_in_chunks(
            lambda batch: _choose_labels(model(batch)["logits"]), batch, _LABEL_SPECS
        )
        indices = tf.stack([window, position], axis=1)
        label = tf.gather_nd(predicted["label"], indices)
        probability = tf.gather_nd(predicted["probability"], indices)

        # For each word: the index of its label's type (-1 for O), and of its text.
        word_type = tf.gather(type_of, label)
        row = words.value_rowids()
        in_span, is_first = _group_words(word_type, tf.gather(begins_span, label), row)
        # `span` has the index of the span for each word that is in a span.
        span = tf.boolean_mask(tf.cumsum(tf.cast(is_first, tf.int32)) - 1, in_span)
        num_spans = tf.reduce_sum(tf.cast(is_first, tf.int32))
        span_row = tf.boolean_mask(row, is_first)
        begin = tf.boolean_mask(begins.values, is_first)
        end = tf.math.unsorted_segment_max(
            tf.boolean_mask(ends.values, in_span), span, num_spans
        )
        spans = {
            "types": tf.gather(types, tf.boolean_mask(word_type, is_first)),
            "texts": tf.strings.substr(
                tf.gather(text, span_row), begin, end - begin, unit="UTF8_CHAR"
            ),
            "begins": begin,
            "ends": end,
            "probabilities": tf.math.unsorted_segment_mean(
                tf.boolean_mask(probability, in_span), span, num_spans
            ),
        }
        return _pad(spans, span_row, words.nrows())

    specs = serving.text_specs(pairs=False)
    return serving.ServingFunction(model, inputs, answer, specs)


def _group_words(word_type: tf.Tensor, begins_span: tf.Tensor, row: tf.Tensor):
    """Returns whether each word is in a span, and whether it begins one, bool [N] each.

    Args:
        word_type: int32 [N], the index of the type of each word's label; -1 for words
            outside spans.
        begins_span: bool [N], whether the label always begins a span.
        row: int [N], the index of each word's text.
    """
    same = (word_type[1:] == word_type[:-1]) & (row[1:] == row[:-1])
    # The padding says that the first word continues no span. If N is 0, there is no
    # word, and the slice removes the padding.
    continues = tf.pad(same, [[1, 0]])[: tf.size(word_type)]
    in_span = word_type >= 0
    return in_span, in_span & (begins_span | ~continues)


def _pad(spans: Mapping[str, tf.Tensor], row: tf.Tensor, count: tf.Tensor):
    """Pads the spans of `count` texts to the largest number of spans in a text.

    Args:
        spans: tensors by name with a value for each span.
        row: the index of each span's text.
        count: number of texts.
    """
    # Other tensors get the default of their dtype, "" or 0.
    default = {"begins": -1, "ends": -1}
    return {
        name: tf.RaggedTensor.from_value_rowids(
            values, row, count, validate=False
        ).to_tensor(default.get(name))
        for name, values in spans.items()
    }


def _choose_labels(logits: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the most likely label of each token, and the label's probability.

    Args:
        logits: float32 [W, T, K], for W windows, T tokens of a window, and K labels.
    """
    return {
        "label": tf.argmax(logits, axis=-1, output_type=tf.int32),
        "probability": tf.reduce_max(tf.nn.softmax(logits), axis=-1),
    }
