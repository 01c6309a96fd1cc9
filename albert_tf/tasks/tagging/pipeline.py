"""Raw text of any length to labelled spans, in Python; see `graph`."""

import numpy as np

from albert_tf.errors import InputError
from albert_tf.tasks.pipelines import Example, Pipeline, round_floats, softmax
from albert_tf.tasks.settings.tagging import TaggingSettings
from albert_tf.tasks.tagging.reading import INSIDE, has_entities
from albert_tf.text.words import split_words


class TokenClassificationPipeline(Pipeline):
    """The spans of a text: entities, or every word where labels are no entities."""

    settings_class = TaggingSettings
    options = ("labels",)
    outputs = ("logits",)
    fields = dict.fromkeys(["text"], False)

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        self.labels = settings.labels
        self.has_entities = has_entities(self.labels)

    def preprocess(self, row):
        places = split_words(row["text"])
        words = [row["text"][begin:end] for begin, end in places]
        tokens = self.tokenizer.encode_batch(words)
        tokens = [ids or [self.tokenizer.unk_id] for ids in tokens]
        ids, firsts = windows(tokens, self.max_seq_length - 2)
        special = self.tokenizer.cls_id, self.tokenizer.sep_id
        inputs = [_inputs([special[0], *each, special[1]]) for each in ids]
        return Example(row, inputs if words else [], (places, firsts))

    def select(self, inputs, outputs):
        logits = outputs["logits"][: len(inputs["input_ids"])]
        if logits.shape[-1] != len(self.labels):
            raise InputError(
                f"{len(self.labels)} labels ({', '.join(self.labels)}); expected "
                f"{logits.shape[-1]}, one for each output of the model"
            )
        return logits.argmax(-1), softmax(logits).max(-1)

    def postprocess(self, example, outputs):
        spans: list[dict] = []
        before = None
        for (begin, end), (window, place) in zip(*example.context, strict=True):
            numbers, probabilities = outputs[window]
            label, probability = self.labels[numbers[place]], probabilities[place]
            kind = label[2:] if self.has_entities else label
            if not kind:  # O
                before = None
                continue
            if label.startswith(INSIDE) and kind == before:
                spans[-1]["end"] = end
                spans[-1]["probability"].append(probability)
            else:
                chances = {"probability": [probability]}
                spans.append({"type": kind, "begin": begin, "end": end} | chances)
            before = kind
        return {"spans": [_described(span, example.row["text"]) for span in spans]}


def windows(
    tokens: list[list[int]], room: int
) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Lays windows over the words of a sentence, which overlap by half.

    Args:
        tokens: of each word, one or more.
        room: tokens of a window at most, but for [CLS] and [SEP].

    Returns:
        The ids of the windows in order; and for each word the window that it is read
        in, and its first token's place there.
    """
    ids = [id for word in tokens for id in word]
    step = max(1, room // 2)
    count = 1 + (max(len(ids) - room, 0) + step - 1) // step
    starts = np.cumsum([0, *map(len, tokens)])[:-1]
    # Of two windows the one that holds more of what is around; the first of equals.
    numbers = (starts - (room - 1 + step) // 2 + step - 1) // step
    numbers = np.clip(numbers, 0, count - 1)
    places = starts - numbers * step + 1
    each = [ids[number * step :][:room] for number in range(count)]
    return each, list(zip(numbers.tolist(), places.tolist(), strict=True))


def _inputs(ids: list[int]) -> dict[str, np.ndarray]:
    ones = np.ones(len(ids), np.int32)
    array = np.array(ids, np.int32)
    return {"input_ids": array, "input_mask": ones, "segment_ids": 0 * ones}


def _described(span: dict, text: str) -> dict:
    begin, end = span["begin"], span["end"]
    return {
        "type": span["type"],
        "text": text[begin:end],
        "begin": begin,
        "end": end,
        "probability": round_floats(np.mean(span["probability"], dtype=np.float32)),
    }
