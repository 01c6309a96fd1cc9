"""Chooses the most likely option for an article and a question, in Python."""

from albert_tf.tasks import pipelines
from albert_tf.tasks.race import features
from albert_tf.tasks.race.reading import Question, drop_empty
from albert_tf.tasks.settings.race import RaceSettings
from albert_tf.text import inputs


class MultipleChoicePipeline(pipelines.FineTunedPipeline):
    """Chooses among options; empty options at the end get probability 0."""

    settings_class = RaceSettings
    output_names = ("logits",)
    fields = dict.fromkeys(["article", "question"], pipelines.ONE_TEXT)
    fields |= {"options": pipelines.TEXT_LIST}

    def preprocess(self, row):
        # Only the first tokens of an article are used. `cut` drops the rest of the text
        # before it is tokenized, to save memory.
        article = inputs.cut(self.tokenizer, row["article"], self.max_seq_length)
        options = tuple(drop_empty(row["options"]))
        question = Question("", article, text=row["question"], options=options)
        question_features = features.encode(self.tokenizer, [question], self.settings)
        [length] = question_features.lengths
        batch = question_features.make_batch([0], len(options), length, self.tokenizer)
        arrays = {name: value[0] for name, value in batch.items()}
        return pipelines.Example(row, [arrays])

    def score(self, example, outputs):
        # In a batch, questions with fewer options are padded. The logits of padding are
        # masked, so its probabilities are 0. They are dropped here.
        count = len(example.inputs[0]["input_ids"])
        return pipelines.softmax(outputs[0]["logits"])[:count]

    def decide(self, row, scores):
        options = row["options"]
        num_empty = len(options) - len(scores)  # empty options at the end
        choice = int(scores.argmax())
        return {
            "choice": choice,
            "answer": options[choice],
            "probabilities": pipelines.round_floats(scores) + num_empty * [0.0],
        }
