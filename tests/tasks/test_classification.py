import json
import re

import keras
import numpy as np
import pytest

from albert_tf import AlbertConfig, InputError
from albert_tf.tasks import classification, custom, glue, metrics
from albert_tf.tasks.base import Split
from albert_tf.tasks.settings.classification import ClassificationSettings
from albert_tf.tasks.text_task import Example, TextTask

CONFIG = AlbertConfig(
    vocab_size=1500,
    embedding_size=8,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=40,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.2,
)
WORDS = ["file", "list", "string", "object"]


def declare(**changes):
    fields = {
        "name": "words",
        "files": {"train": "train.tsv", "dev": "dev.tsv"},
        "text": ("text",),
        "label": "label",
        "labels": ("no", "yes"),
        "metrics": {"eval_accuracy": metrics.accuracy},
        "key_metric": "eval_accuracy",
    }
    return TextTask(**{**fields, **changes})


@pytest.fixture
def split(tmp_path, tokenizer):
    """Writes a table whose label says whether the text has the word "file"."""

    def make(declared, name, count, label):
        random = np.random.default_rng(len(name))
        lines = ["text\tlabel"]
        for _ in range(count):
            words = random.choice(WORDS, random.integers(1, 6))
            lines.append(f"{' '.join(words)}\t{label(set(words))}")
        path = tmp_path / declared.files[name]
        path.write_text("\n".join(lines) + "\n")
        table = declared.read(name, tmp_path)
        return task_of(declared, tokenizer).encode_split(Split(name, table.rows))

    return make


def test_inputs_of_other_rows_are_not_taken_from_the_cache(tokenizer):
    declared = declare()

    def cache_key(*texts, most=24):
        examples = [Example(str(n), text, None, "no") for n, text in enumerate(texts)]
        task = task_of(declared, tokenizer, max_seq_length=most)
        return json.dumps(task.cache_key(Split("train", examples)))

    kept = cache_key("a file", "a list of strings")
    assert kept == cache_key("a file", "a list of strings")
    assert kept != cache_key("a list of strings", "a file")
    assert kept != cache_key("a file", "a list of strings", most=9)


def task_of(declared, tokenizer, config=CONFIG, max_seq_length=24, **more):
    fields = custom.settings_fields(declared) | more
    settings = ClassificationSettings(max_seq_length=max_seq_length, **fields)
    return classification.Classification(settings, config, tokenizer)


def has_file(words):
    return "yes" if "file" in words else "no"


def test_class_weights_weigh_the_loss_of_training_alone(split, tokenizer):
    declared = declare()
    train, dev = (
        split(declared, name, 7, lambda words: "no" if len(words) > 1 else "yes")
        for name in ("train", "dev")
    )
    labels = declared.targets(train.examples)
    count = np.bincount(labels)
    assert 0 < count[0] != count[1] > 0
    for given, expected in (
        (("balanced",), 7 / 2 / count),
        (("yes=2.5",), [1, 2.5]),
        (("no=.5", "yes=3"), [0.5, 3]),
    ):
        task = task_of(declared, tokenizer, class_weights=given)
        task.set_splits({"train": [train], "dev": [dev]})
        batch = task.training.make(np.arange(7), 24)
        np.testing.assert_allclose(
            batch["example_weight"], np.array(expected)[labels], rtol=1e-6
        )
        outputs = task.build_model()(batch)
        chances = keras.ops.convert_to_numpy(keras.ops.softmax(outputs["logits"]))
        each = -np.log(chances[np.arange(7), labels])
        loss = float(
            task.compute_loss(task.loss_sums(outputs, batch), task.loss_weights(batch))
        )
        wanted = np.average(each, weights=batch["example_weight"])
        assert loss == pytest.approx(wanted, rel=1e-5)
        assert "example_weight" not in task.evaluation.make(np.arange(7), 24)


@pytest.mark.parametrize("given", ["maybe=2", "yes", "yes=x", "yes=-1", "yes=0"])
def test_class_weights_are_for_labels(split, tokenizer, given):
    declared = declare()
    task = task_of(declared, tokenizer, class_weights=(given,))
    message = (
        f"--class_weights={given}: must be balanced, or label=number, above 0, of the "
        f"labels 'no', 'yes'"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        task.set_splits({"train": [split(declared, "train", 5, has_file)]})


GOLDEN = {"mnli": glue.MNLI, "cola": glue.COLA, "sts-b": glue.STSB}


def released(declared, tokenizer, write_checkpoint, recorded, data):
    """Returns the task, and its model with the recorded weights."""
    config = AlbertConfig.from_json_file(data / "model_small.config.json")
    task = task_of(declared, tokenizer, config)
    model = task.build_model()
    path = write_checkpoint(recorded, f"{declared.name}/")
    task.load(model, path, complete=True)
    return task, model


@pytest.mark.parametrize("name", GOLDEN)
def test_logits_and_losses_are_the_released_ones(
    name, tokenizer, write_checkpoint, golden, data
):
    recorded = golden("heads_classifier")
    task, model = released(GOLDEN[name], tokenizer, write_checkpoint, recorded, data)
    batch = {key[3:]: value for key, value in recorded.items() if key[:3] == "in/"}
    batch["labels"] = recorded[f"{name}/in/label_ids"]
    outputs = model(batch)
    logits = recorded[f"{name}/out/logits"].reshape(4, -1)
    np.testing.assert_allclose(outputs["logits"], logits, atol=2e-5)
    loss = task.compute_loss(task.loss_sums(outputs, batch), task.loss_weights(batch))
    assert float(loss) == pytest.approx(recorded[f"{name}/out/loss"], abs=2e-5)
    kept = task.prediction_outputs(outputs, batch)["outputs"]
    if name == "sts-b":
        np.testing.assert_allclose(kept[:, 0], logits[:, 0], atol=2e-5)
    else:
        probabilities = recorded[f"{name}/out/probabilities"]
        np.testing.assert_allclose(kept, probabilities, atol=2e-5)
    # Two examples that only fill up a batch change nothing but the sum.
    weight = np.array([1, 1, 0, 0], "float32")
    filled = {**batch, "example_weight": weight}
    each = recorded[f"{name}/out/per_example_loss"]
    loss = task.compute_loss(task.loss_sums(outputs, filled), task.loss_weights(filled))
    assert float(loss) == pytest.approx(each[:2].mean(), abs=2e-5)


@pytest.mark.parametrize("name", GOLDEN)
def test_an_evaluation_has_the_released_figures(
    name, tokenizer, write_checkpoint, golden, data
):
    recorded = golden("heads_classifier")
    declared = GOLDEN[name]

    def found(key):
        value = recorded[f"{name}/eval_in/{key}"]
        return value.reshape(24, *value.shape[2:])

    real = found("is_real_example") == 1
    assert real.sum() == 22
    labels = found("label_ids")[real]
    words = labels if declared.labels is None else np.array(declared.labels)[labels]
    examples = [Example(str(n), "", None, word) for n, word in enumerate(words)]
    task, model = released(
        declared,
        tokenizer,
        write_checkpoint,
        recorded,
        data,
    )
    task.evaluated = [Split("dev", examples, range(22))]
    model.head.output_dense.bias.assign(recorded[f"{name}/eval_in/output_bias"])
    batch = {
        "input_ids": found("input_ids"),
        "input_mask": np.tile(recorded["in/input_mask"], (6, 1)),
        "segment_ids": np.tile(recorded["in/segment_ids"], (6, 1)),
        "labels": found("label_ids"),
        "example_weight": real.astype("float32"),
    }
    outputs = model(batch)
    logits = found("logits").reshape(24, -1)
    np.testing.assert_allclose(outputs["logits"], logits, atol=2e-5)
    loss = float(
        task.compute_loss(task.loss_sums(outputs, batch), task.loss_weights(batch))
    )
    kept = np.array(task.prediction_outputs(outputs, batch)["outputs"])
    rows = ({"outputs": row} for row in kept[real])
    scores = task.evaluate_predictions(rows, {"loss": loss})
    start = f"{name}/eval_metrics/"
    wanted = {
        key.removeprefix(start): value
        for key, value in recorded.items()
        if key.startswith(start) and value.shape == ()
    }
    assert wanted.keys() >= {"eval_loss", declared.key_metric}
    for key, value in wanted.items():
        assert scores[key] == pytest.approx(value, abs=2e-5), key
