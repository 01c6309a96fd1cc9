"""A family of one's own: a task, a pipeline, its settings, and one line."""

import dataclasses
import json
import types

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from albert_tf import AlbertClassifier, flags
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.serve import predict
from albert_tf.tasks import base, registry
from albert_tf.tasks.base import Split
from albert_tf.tasks.pipelines import Example, Pipeline
from albert_tf.tasks.serving import ServingFunction, TextInputs, text_specs
from albert_tf.tasks.settings.base import TaskSettings
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings
from albert_tf.tasks.settings.pipeline import PipelineSettings
from albert_tf.text import inputs


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvenSettings(TaskSettings):
    """Which texts.

    Args:
        max_seq_length: Most tokens.
        train_file: Texts, one a line.
    """

    max_seq_length: int | None = flags.field(None, stored="required", fallback=9)
    train_file: str | None = flags.field(None)
    task_name: str = "even"


class Even(base.FineTuningTask):
    """Whether the number of words of a text is even."""

    task_types = ("even",)
    main_metrics = ("eval_accuracy",)

    @classmethod
    def read_examples(cls, settings, saved_settings, run_settings, log):
        with open(settings.train_file, encoding="utf-8") as file:
            split = Split("train", file.read().splitlines())
        return settings, {"train": [split], "dev": [split]}

    def encode(self, split):
        length = self.tokens_per_example
        encoded = inputs.encode(self.tokenizer, split.examples, None, length)
        return vars(encoded)

    def dataset(self, splits, *, with_labels):
        [split] = splits
        labels = np.array([len(text.split()) % 2 for text in split.examples], np.int32)

        def make_batch(rows, length):
            batch = inputs.pad(split.features, rows, length, self.tokenizer.pad_id)
            return {**batch, "labels": labels[np.asarray(rows)]}

        return self.bucket(split.features.lengths, make_batch)

    def build_model(self):
        return AlbertClassifier(self.config, 2)

    def loss_sums(self, outputs, batch):
        each = heads.classification_loss(outputs["logits"], batch["labels"])
        return {"loss": ops.sum(each * base.example_weights(batch))}

    def compute_metrics(self, split, answers):
        odd = [len(text.split()) % 2 for text in split.examples]
        return {"eval_accuracy": float(np.mean(answers.argmax(axis=-1) == odd))}

    def prediction_files(self, split, answers):
        return {}

    def serving_fn(self, model, threshold):
        graph = TextInputs(model, self.tokenizer, self.tokens_per_example)

        def answer(text):
            return {"even": tf.argmax(model(graph(text))["logits"], -1) == 0}

        return ServingFunction(model, graph, answer, text_specs(pairs=False))


class EvenPipeline(Pipeline):
    """The same in Python."""

    settings_class = EvenSettings
    output_names = ("logits",)
    fields = types.MappingProxyType({"text": False})

    def preprocess(self, row):
        return Example(row, [self.join(row["text"])])

    def postprocess(self, example, outputs):
        return {"even": bool(outputs[0]["logits"].argmax() == 0)}


@pytest.mark.usefixtures("eagerly")
def test_a_family_is_a_folder_and_a_line(monkeypatch, tmp_path, new_model, fine_tune):
    line = registry.TaskClasses(f"{__name__}:EvenPipeline", f"{__name__}:Even")
    monkeypatch.setitem(registry.FINE_TUNED, "even", line)
    texts = [" ".join(["file"] * (1 + n % 5)) for n in range(11)]
    (tmp_path / "texts").write_text("\n".join(texts))
    given = {
        "train_file": str(tmp_path / "texts"),
        "output_dir": str(tmp_path / "run"),
        **{"do_train": True, "do_eval": True, "num_train_steps": 2},
    }
    log = fine_tune(Even, FineTuningSettings, given, new_model())
    assert "eval_accuracy" in log
    assert json.loads((tmp_path / "run/task.json").read_text())["kind"] == "even"

    predictor = predict.load(tmp_path / "run")
    answers = list(predictor(texts))
    outputs = predictor.serving_fn().answer(text=tf.constant(texts))
    assert [answer["even"] for answer in answers] == outputs["even"].numpy().tolist()
    with pytest.raises(InputError, match=r"threshold=0.5: even only takes --max_seq"):
        predict.load(tmp_path / "run", PipelineSettings(threshold=0.5))
    pytest.importorskip("onnxruntime")
    options = PipelineSettings(runtime="onnx")
    assert list(predict.load(tmp_path / "run", options)(texts)) == answers
