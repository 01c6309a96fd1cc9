"""Words to windows, and raw text to spans, in a graph.

A word is tokenized by itself, and its first token carries its label; one without a
token is [UNK]. Sentences that are longer than an input are read in windows that overlap
by half, each word where it has most context: nothing is cut.
"""

from collections.abc import Sequence

import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.model.models import AlbertTokenClassifier
from albert_tf.tasks import serving
from albert_tf.tasks.pipelines import check_inputs
from albert_tf.tasks.tagging.reading import INSIDE, has_entities
from albert_tf.text import in_graph
from albert_tf.text.in_graph import GraphTokenizer
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata


def windows(
    tokens: tf.RaggedTensor, sentences: tf.RaggedTensor, room: int, tokenizer: Tokenizer
) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
    """Lays windows over sentences, for Python and for a graph.

    Args:
        tokens: int32 [N, None], those of each word.
        sentences: [S, None], anything for each word: their words one after the other.
        room: tokens of a window at most, but for [CLS] and [SEP].
        tokenizer: of the tokens.

    Returns:
        The ids of the windows, int32 [W, None], those of a sentence in order; and for
        each word the window that it is read in, int64 [N], and its first token's
        place there, int64 [N].
    """
    one = tf.ones_like(tokens.row_lengths())
    is_empty = tf.cast(tokens.row_lengths() == 0, tf.int64)
    tokens = in_graph.assemble(
        [
            (tokens.values, tokens.row_starts(), tokens.row_lengths()),
            in_graph.single(tokenizer.unk_id, is_empty),
        ]
    )
    sentence = sentences.value_rowids()
    length = tf.math.unsorted_segment_sum(
        tokens.row_lengths(), sentence, sentences.nrows()
    )
    start = tf.cumsum(length, exclusive=True)
    step = max(1, room // 2)
    count = 1 + (tf.maximum(length - room, 0) + step - 1) // step
    first = tf.cumsum(count, exclusive=True)
    # Of two windows the one that holds more of what is around; the first of equals.
    place = tokens.row_starts() - tf.gather(start, sentence)
    number = (place - (room - 1 + step) // 2 + step - 1) // step
    number = tf.clip_by_value(number, 0, tf.gather(count, sentence) - 1)

    of_window = tf.repeat(tf.range(sentences.nrows()), count)
    begin = tf.ragged.range(count).values * step
    kept = tf.minimum(tf.gather(length, of_window) - begin, room)
    one = tf.ones_like(kept)
    ids = in_graph.assemble(
        [
            in_graph.single(tokenizer.cls_id, one),
            (tokens.values, tf.gather(start, of_window) + begin, kept),
            in_graph.single(tokenizer.sep_id, one),
        ]
    )
    return ids, tf.gather(first, sentence) + number, place - number * step + 1


def tag_texts(
    model: AlbertTokenClassifier,
    tokenizer: Tokenizer,
    *,
    labels: Sequence[str],
    max_seq_length: int,
) -> serving.ServingFunction:
    """Returns what marks spans in texts of any length.

    Input: `text`, string [B], which `in_graph.split_words` cuts into words. Outputs, a
    column for each entity, or for each word where labels are no entities: `types` and
    `texts`, string [B, S]; `begins` and `ends`, int32 [B, S], characters of the text;
    `probabilities`, float32 [B, S], the mean of a span's words. Behind the last span
    of a text there are "", -1 and 0. A label I-TYPE that follows no word of its type
    begins an entity, as it does to seqeval.

    Args:
        model: labels tokens.
        tokenizer: the vocabulary.
        labels: in the order of the model's outputs.
        max_seq_length: most tokens of an input.

    Raises:
        InputError: the model, the labels, the length or the vocabulary do not fit.
    """
    serving.check_kind(model, AlbertTokenClassifier)
    check_inputs(model.config, tokenizer, max_seq_length)
    if len(labels) != model.head.num_labels:
        raise InputError(
            f"{len(labels)} labels ({', '.join(labels)}); expected "
            f"{model.head.num_labels}, one for each output of the model"
        )
    graph = _Tagger(model, tokenizer, labels, max_seq_length)
    specs = serving.text_specs(pairs=False)
    return serving.ServingFunction(model, graph, graph.respond, specs)


class _Tagger(tf.Module):
    def __init__(self, model, tokenizer: Tokenizer, labels, max_seq_length: int):
        super().__init__()
        # Not the model itself: an attribute would be saved as a Keras model too.
        self._label = lambda inputs: _likeliest(model(inputs)["logits"])
        self.vocabulary = metadata.identity_json(tokenizer)
        self._tokenize = GraphTokenizer(tokenizer)
        self._lay = lambda tokens, words: windows(
            tokens, words, max_seq_length - 2, tokenizer
        )
        self._pad = tokenizer.pad_id
        are_entities = has_entities(labels)
        names = [label[2:] if are_entities else label for label in labels]
        self._types = sorted(set(names) - ({""} if are_entities else set()))
        number = {name: i for i, name in enumerate(self._types)}
        self._type_of = [number.get(name, -1) for name in names]
        self._begins = [not label.startswith(INSIDE) for label in labels]

    def respond(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Marks spans in texts, string [B]."""
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        words, begins, ends = in_graph.split_words(text)
        ids, window, place = self._lay(self._tokenize(words.values), words)
        batch = in_graph.pad(ids, ids.row_lengths(), self._pad)
        labelled = serving.map_in_chunks(self._label, batch, _LABELLED)
        at = tf.stack([window, place], axis=1)
        label = tf.gather_nd(labelled["label"], at)
        probability = tf.gather_nd(labelled["probability"], at)

        kind = tf.gather(self._type_of, label)
        row = words.value_rowids()
        same = (kind[1:] == kind[:-1]) & (row[1:] == row[:-1])
        continues = tf.pad(same, [[1, 0]])[: tf.size(kind)]
        is_in = kind >= 0
        is_first = is_in & (tf.gather(self._begins, label) | ~continues)
        span = tf.boolean_mask(tf.cumsum(tf.cast(is_first, tf.int32)) - 1, is_in)
        count = tf.reduce_sum(tf.cast(is_first, tf.int32))
        row = tf.boolean_mask(row, is_first)
        begin = tf.boolean_mask(begins.values, is_first)
        end = tf.math.unsorted_segment_max(
            tf.boolean_mask(ends.values, is_in), span, count
        )
        spans = {
            "types": tf.gather(self._types, tf.boolean_mask(kind, is_first)),
            "texts": tf.strings.substr(
                tf.gather(text, row), begin, end - begin, unit="UTF8_CHAR"
            ),
            "begins": begin,
            "ends": end,
            "probabilities": tf.math.unsorted_segment_mean(
                tf.boolean_mask(probability, is_in), span, count
            ),
        }
        default = {"begins": -1, "ends": -1}
        return {
            name: tf.RaggedTensor.from_value_rowids(
                values, row, words.nrows(), validate=False
            ).to_tensor(default.get(name))
            for name, values in spans.items()
        }


_LABELLED = {
    "label": tf.TensorSpec([None, None], tf.int32),
    "probability": tf.TensorSpec([None, None], tf.float32),
}


def _likeliest(logits: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns the label of each token and its probability, for [W, T, K]."""
    return {
        "label": tf.argmax(logits, axis=-1, output_type=tf.int32),
        "probability": tf.reduce_max(tf.nn.softmax(logits), axis=-1),
    }
