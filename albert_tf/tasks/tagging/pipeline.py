"""Finds labeled spans in raw text of any length, in Python.

The results are the same as in a TensorFlow graph, see the module `graph`.
"""

import numpy as np

from albert_tf.tasks import pipelines
from albert_tf.tasks.settings.tagging import TaggingSettings
from albert_tf.tasks.tagging.reading import INSIDE, has_entities
from albert_tf.text.words import split_words


class TokenClassificationPipeline(pipelines.FineTunedPipeline):
    """Finds spans: entities, or all words if the labels do not mark entities."""

    settings_class = TaggingSettings
    option_names = ("labels",)
    output_names = ("logits",)
    fields = dict.fromkeys(["text"], pipelines.ONE_TEXT)

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        self.labels = settings.labels
        self.has_entities = has_entities(self.labels)

    def preprocess(self, row):
        words = [row["text"][begin:end] for begin, end in split_words(row["text"])]
        tokenizer = self.tokenizer
        tokens = [ids or [tokenizer.unk_id] for ids in tokenizer.encode_batch(words)]
        window_ids, positions = divide(tokens, self.max_seq_length - 2)
        # A text without words has no windows.
        inputs = [
            pipelines.single_segment([tokenizer.cls_id, *window, tokenizer.sep_id])
            for window in (window_ids if words else ())
        ]
        return pipelines.Example(row, inputs, positions)

    def select(self, inputs, outputs):
        # The logits after the last token of the window are those of padding.
        logits = outputs["logits"][: len(inputs["input_ids"])]
        pipelines.check_labels(self.labels, logits.shape[-1])
        return pipelines.softmax(logits)

    def score(self, example, outputs):
        # The probabilities of the labels of each word. `preprocess` has stored its
        # `positions` as `example.context`: for each word, the index of its window and
        # the position of its first token there.
        scores = [outputs[window][position] for window, position in example.context]
        return np.array(scores, np.float32)

    def decide(self, row, scores):
        spans: list[dict] = []
        # For each span, the probabilities of its words' labels.
        probabilities: list[list[float]] = []
        previous_type = None
        words = split_words(row["text"])
        for (begin, end), word_scores in zip(words, scores, strict=True):
            label = self.labels[int(word_scores.argmax())]
            label_type = label[2:] if self.has_entities else label
            if label_type:  # it is "" for O
                if not (label.startswith(INSIDE) and label_type == previous_type):
                    spans.append({"type": label_type, "text": "", "begin": begin})
                    probabilities.append([])
                spans[-1]["end"] = end
                probabilities[-1].append(word_scores.max())
            previous_type = label_type
        for span, each in zip(spans, probabilities, strict=True):
            span["text"] = row["text"][span["begin"] : span["end"]]
            mean = np.mean(each, dtype=np.float32)
            span["probability"] = pipelines.round_floats(mean)
        return {"spans": spans}


def divide(
    tokens: list[list[int]], size: int
) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Divides a sentence into windows that overlap by half.

    Args:
        tokens: the tokens of each word, one or more.
        size: maximum number of tokens of a window without [CLS] and [SEP].

    Returns:
        The ids of the windows in order. For each word, its window and the position of
        its first token in the window, where [CLS] has position 0.
    """
    ids = [id for word in tokens for id in word]
    step = max(1, size // 2)
    # Number of windows: as many as are needed to reach the end of the sentence.
    count = 1 + (max(len(ids) - size, 0) + step - 1) // step
    starts = np.cumsum([0, *map(len, tokens)])[:-1]  # of words, as indices in `ids`
    # The window of each word: the one whose middle is nearest to the word, or the first
    # one of two such windows.
    windows = (starts - (size - 1 + step) // 2 + step - 1) // step
    windows = np.clip(windows, 0, count - 1)
    positions = starts - windows * step + 1
    window_ids = [ids[begin : begin + size] for begin in range(0, count * step, step)]
    return window_ids, list(zip(windows.tolist(), positions.tolist(), strict=True))
