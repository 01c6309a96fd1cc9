"""Chooses the most likely option for an article and a question, in Python."""

from albert_tf.tasks.pipelines import Example, FineTunedPipeline, round_floats, softmax
from albert_tf.tasks.race import features
from albert_tf.tasks.race.reading import Question, drop_empty
from albert_tf.tasks.settings.race import RaceSettings
from albert_tf.text import inputs


class MultipleChoicePipeline(FineTunedPipeline):
    """Chooses among options; empty options at the end do not count."""

    settings_class = RaceSettings
    output_names = ("logits",)
    # True for a list of texts.
    fields = dict.fromkeys(["article", "question"], False) | {"options": True}

    def preprocess(self, row):
        article = inputs.cut(self.tokenizer, row["article"], self.max_seq_length)
        options = tuple(drop_empty(row["options"]))
        question = Question("", article, row["question"], options)
        question_features = features.encode(self.tokenizer, [question], self.settings)
        [length] = question_features.lengths
        batch = question_features.make_batch([0], len(options), length, self.tokenizer)
        return Example(row, [{name: value[0] for name, value in batch.items()}])

    def score(self, example, outputs):
        # A batch has padding up to its largest number of options.
        count = len(example.inputs[0]["input_ids"])
        return softmax(outputs[0]["logits"])[:count]

    def decide(self, row, scores):
        options = row["options"]
        probabilities = scores[: len(options)]
        missing = len(options) - len(probabilities)
        choice = int(probabilities.argmax())
        return {
            "choice": choice,
            "answer": options[choice],
            "probabilities": round_floats(probabilities) + missing * [0.0],
        }
