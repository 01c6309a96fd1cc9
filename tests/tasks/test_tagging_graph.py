"""Windows of words, and spans in raw text."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model import models
from albert_tf.serve import runtimes
from albert_tf.serve.predict import Predictor
from albert_tf.tasks.settings.pipeline import PipelineSettings
from albert_tf.tasks.settings.tagging import TaggingSettings
from albert_tf.tasks.tagging import graph
from albert_tf.tasks.tagging.pipeline import TokenClassificationPipeline

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def windows(counts, words, room, tokenizer):
    """Lays windows over tokens that are numbered from 100 on."""
    tokens = tf.RaggedTensor.from_row_lengths(
        tf.range(100, 100 + sum(counts)), tf.constant(counts, tf.int64)
    )
    sentences = tf.RaggedTensor.from_row_lengths(tf.constant(counts), words)
    ids, window, place = graph.divide(tokens, sentences, room, tokenizer)
    return ids.to_list(), window.numpy().tolist(), place.numpy().tolist()


def test_windows_are_those_worked_by_hand(tokenizer):
    cls, sep, unk = tokenizer.cls_id, tokenizer.sep_id, tokenizer.unk_id
    ids, window, place = windows([1, 2, 1, 0, 3, 2, 1], [5, 2], 4, tokenizer)
    assert ids == [
        [cls, 100, 101, 102, 103, sep],
        [cls, 102, 103, unk, 104, sep],
        [cls, unk, 104, 105, 106, sep],
        [cls, 107, 108, 109, sep],
    ]
    # 103 has one token after it in the second window, none in the first.
    assert list(zip(window, place, strict=True)) == [
        *((0, 1), (0, 2), (1, 2), (1, 3), (2, 2)),
        *((3, 1), (3, 3)),
    ]


class Known(models.AlbertTokenClassifier):
    """Gives each id the label of a table, with a certain probability."""

    labels: dict[int, int] = {}  # noqa: RUF012 (set by the tests)

    def call(self, inputs, training=False):
        ids = inputs["input_ids"]
        table = np.zeros(self.config.vocab_size, "int32")
        for id, label in self.labels.items():
            table[id] = label
        logits = tf.one_hot(tf.gather(table, ids), self.head.num_labels)
        return {"logits": logits * (1.0 + tf.cast(ids % 2, tf.float32))[..., None]}


def answer_both_ways(model, tokenizer, labels, length):
    """Returns what answers texts in Python, and whose graph answers alike."""
    settings = TaggingSettings(labels=labels, max_seq_length=length)
    pipeline = TokenClassificationPipeline(
        settings, model.config, tokenizer, PipelineSettings()
    )
    run = runtimes.build_runner(model, eagerly=True)
    predictor = Predictor(pipeline, lambda is_large: run, 3, "", {})
    serving_fn = graph.tag_texts(model, tokenizer, labels=labels, max_seq_length=length)

    def answer(texts):
        answers = list(predictor(texts))
        outputs = serving_fn.answer(text=tf.constant(texts))
        check_alike(answers, {k: v.numpy() for k, v in outputs.items()})
        return answers

    return answer


def check_alike(answers, outputs):
    names = ("types", "texts", "begins", "ends", "probabilities")
    columns = [np.asarray(outputs[name]) for name in names]
    for answer, *row in zip(answers, *columns, strict=True):
        served = [r for r in zip(*row, strict=True) if int(r[2]) >= 0]
        for span, (kind, text, begin, end, probability) in itertools.zip_longest(
            answer["spans"], served
        ):
            plain = [t.decode() if isinstance(t, bytes) else t for t in (kind, text)]
            assert [span["type"], span["text"]] == plain
            assert (span["begin"], span["end"]) == (int(begin), int(end))
            assert span["probability"] == pytest.approx(float(probability), abs=1e-6)


@pytest.fixture
def answering(tiny, tokenizer):
    """Makes what answers with known labels of words: {word: label}."""

    def make(labels, known, length=16):
        config = tiny(vocab_size=tokenizer.vocab_size)
        model = Known(config, len(labels))
        # Each first token has to tell its word from the others.
        model.labels = {
            tokenizer.encode(word)[0]: labels.index(label)
            for word, label in known.items()
        }
        return answer_both_ways(model, tokenizer, labels, length)

    return make


def found(answer):
    return [(s["type"], s["text"], s["begin"], s["end"]) for s in answer["spans"]]


def test_spans_are_those_worked_by_hand(answering, tokenizer):
    known = {"the": "B-PER", "list": "I-PER", "of": "I-LOC", "file": "B-LOC"}
    answer = answering(LABELS, known)
    rows = ["(the\n list of) a file file", "list, the the's", "", "a", "of"]
    one, two, three, four, five = answer(rows)
    # The probability of a span is the mean of its words.
    scales = [1 + tokenizer.encode(word)[0] % 2 for word in ("the", "list")]
    chances = [np.exp(scale) / (np.exp(scale) + 4) for scale in scales]
    assert one["spans"][0]["probability"] == pytest.approx(np.mean(chances))
    assert found(one) == [
        ("PER", "the\n list", 1, 10),
        ("LOC", "of", 11, 13),
        ("LOC", "file", 17, 21),
        ("LOC", "file", 22, 26),
    ]
    assert found(two) == [
        ("PER", "list", 0, 4),
        ("PER", "the", 6, 9),
        ("PER", "the", 10, 13),
    ]
    assert three == four == {"spans": []}
    # No span goes from one text to the next.
    assert found(five) == [("LOC", "of", 0, 2)]


def test_labels_that_are_no_entities_are_those_of_each_word(answering):
    answer = answering(("NN", "DT"), {"the": "DT"})
    assert found(answer(["the list. list"])[0]) == [
        ("DT", "the", 0, 3),
        ("NN", "list", 4, 8),
        ("NN", ".", 8, 9),
        ("NN", "list", 10, 14),
    ]


def test_texts_of_many_windows_are_read_to_their_end(answering):
    answer = answering(LABELS, {"the": "B-PER", "list": "I-PER"}, length=7)
    text = "a the list of\x07 a " * 100
    spans = found(answer([text])[0])
    places = [2 + 17 * i for i in range(100)]
    assert spans == [("PER", "the list", begin, begin + 8) for begin in places]


def test_own_weights_answer_alike_in_python_and_in_the_graph(tiny, tokenizer):
    keras.utils.set_random_seed(5)
    config = tiny(vocab_size=tokenizer.vocab_size, num_hidden_layers=1)
    model = models.AlbertTokenClassifier(config, len(LABELS))
    kernel = model.head.output_dense.kernel
    kernel.assign(keras.random.normal(kernel.shape, seed=3))
    texts = ["Größe of the «list», 中文 files' end. " * 5, "", "😀 a"]
    found = answer_both_ways(model, tokenizer, LABELS, 11)(texts)
    assert sum(len(row["spans"]) for row in found) > 3
