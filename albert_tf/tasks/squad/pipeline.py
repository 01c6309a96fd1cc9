"""Answers questions from contexts, in Python."""

from albert_tf.errors import InputError
from albert_tf.tasks import pipelines
from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad import answers, features
from albert_tf.tasks.squad.reading import Dataset, Paragraph, Question
from albert_tf.text import inputs

# `answers.Answers` stores its results by question id. A row has only one question; this
# is its id.
_ID = ""


class QuestionAnsweringPipeline(pipelines.FineTunedPipeline):
    """Finds the span of a context that answers a question."""

    settings_class = SquadSettings
    option_names = ("threshold", "top_k")
    fields = dict.fromkeys(["question", "context"], pipelines.ONE_TEXT)

    def __init__(self, settings, config, tokenizer, options):
        super().__init__(settings, config, tokenizer, options)
        self.threshold = options.threshold
        if self.threshold is None:
            self.threshold = settings.threshold
        check_threshold(settings.version, self.threshold)
        self.top_k = options.top_k
        self.min_length = settings.min_length

    def preprocess(self, row):
        # Only the first tokens of a question are used. `cut` drops the rest of the text
        # before it is tokenized, to save memory.
        text = inputs.cut(self.tokenizer, row["question"], self.max_seq_length)
        question = Question(id=_ID, text=text, answers=(), is_impossible=False)
        paragraph = Paragraph(context=row["context"], questions=(question,))
        dataset = Dataset("", self.settings.version, paragraphs=(paragraph,))
        windows = features.make_windows(dataset, self.tokenizer, self.settings)
        arrays = [window.make_inputs(len(window.ids)) for window in windows]
        return pipelines.Example(row, arrays, windows)

    def score(self, example, outputs):
        return answers.collect_answers(example.context, outputs, self.settings)

    def decide(self, row, scores):
        odds = scores.null_odds.get(_ID)  # None in SQuAD 1.1
        best = [
            {
                "answer": text,
                "begin": begin,
                "end": end,
                "probability": pipelines.round_floats(entry["probability"]),
            }
            for (text, begin, end), entry in scores.n_best[_ID].items()
            # If no span is valid, the n-best list has one entry, with `begin` -1.
            if begin >= 0
        ]
        empty = {"answer": "", "begin": -1, "end": -1}
        answer = {**best[0]} if best else {**empty, "probability": 0.0}
        if odds is not None and self.threshold is not None and odds > self.threshold:
            answer |= empty  # the probability is still the one of the best span
        if odds is not None:
            answer["null_odds"] = pipelines.round_floats(odds)
        if self.top_k is not None:
            answer["answers"] = best[: self.top_k]
        return answer


def check_threshold(version: str, threshold: float | None) -> None:
    """Checks that a model for SQuAD 1.1 has no threshold."""
    if threshold is not None and version == "1.1":
        raise InputError(
            f"threshold {threshold}: a model of SQuAD 1.1 has no null odds"
        )
