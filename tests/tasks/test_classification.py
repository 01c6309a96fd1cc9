import json

import keras
import numpy as np
import pytest

from albert_tf import AlbertConfig
from albert_tf.tasks import classification, custom, glue
from albert_tf.tasks.base import Split
from albert_tf.tasks.settings.classification import ClassificationSettings
from albert_tf.tasks.text_task import Example, TextTask

WORDS = TextTask(
    name="words",
    files={"train": "train.tsv", "dev": "dev.tsv"},
    text=("text",),
    labels=("no", "yes"),
)


@pytest.fixture
def task_of(tiny, tokenizer):
    def make(declared, config=None, max_seq_length=24, **more):
        config = config or tiny(vocab_size=1500, max_position_embeddings=40)
        fields = custom.settings_fields(declared) | more
        settings = ClassificationSettings(max_seq_length=max_seq_length, **fields)
        return classification.Classification(settings, config, tokenizer)

    return make


@pytest.fixture
def split(task_of):
    """Five of its seven texts are labelled yes."""

    def make(name):
        examples = [
            Example(str(n), "file " * n, None, "no" if n % 3 == 1 else "yes")
            for n in range(1, 8)
        ]
        return task_of(WORDS).encode_split(Split(name, examples[1:] + examples[:1]))

    return make


def test_inputs_of_other_rows_are_not_taken_from_the_cache(task_of):
    def cache_key(*texts, most=24):
        examples = [Example(str(n), text, None, "no") for n, text in enumerate(texts)]
        task = task_of(WORDS, max_seq_length=most)
        return json.dumps(task.cache_key(Split("train", examples)))

    kept = cache_key("a file", "a list of strings")
    assert kept == cache_key("a file", "a list of strings")
    assert kept != cache_key("a list of strings", "a file")
    assert kept != cache_key("a file", "a list of strings", most=9)


@pytest.mark.parametrize(
    ("given", "weights"),
    [
        (("balanced",), [7 / 2 / 3, 7 / 2 / 4]),
        (("yes=2.5",), [1, 2.5]),
        (("no=.5", "yes=3"), [0.5, 3]),
    ],
)
def test_class_weights_weigh_the_loss_of_training_alone(split, task_of, given, weights):
    train = split("train")
    labels = WORDS.targets(train.examples)
    assert np.bincount(labels).tolist() == [3, 4]
    task = task_of(WORDS, class_weights=given)
    task.set_splits({"train": [train], "dev": [split("dev")]})
    batch = task.training.make_batch(np.arange(7), 24)
    expected = np.array(weights)[labels]
    np.testing.assert_allclose(batch["example_weight"], expected, rtol=1e-6)
    outputs = task.build_model()(batch)
    chances = keras.ops.convert_to_numpy(keras.ops.softmax(outputs["logits"]))
    each = -np.log(chances[np.arange(7), labels])
    wanted = np.average(each, weights=batch["example_weight"])
    assert loss_of(task, outputs, batch) == pytest.approx(wanted, rel=1e-5)
    assert "example_weight" not in task.evaluation.make_batch(np.arange(7), 24)


def loss_of(task, outputs, batch):
    sums, weights = task.loss_sums(outputs, batch), task.loss_weights(batch)
    return float(task.compute_loss(sums, weights))


def test_class_weights_are_for_labels(split, task_of, refuses):
    for given in ("maybe=2", "yes", "yes=x", "yes=-1", "yes=0"):
        with refuses(
            f"--class_weights={given}: must be balanced, or items label=number with a "
            f"number above 0 and one of the labels 'no', 'yes'"
        ):
            task_of(WORDS, class_weights=(given,)).set_splits(
                {"train": [split("train")]}
            )


GOLDEN = {"mnli": glue.MNLI, "cola": glue.COLA, "sts-b": glue.STSB}


@pytest.fixture
def released(task_of, write_checkpoint, golden, data):
    """Returns the task, its model with the recorded weights, and the recording."""

    def make(name):
        recorded = golden("heads_classifier")
        config = AlbertConfig.from_json_file(data / "model_small.config.json")
        task = task_of(GOLDEN[name], config)
        model = task.build_model()
        task.load(model, write_checkpoint(recorded, f"{name}/"), strict=True)
        return task, model, recorded

    return make


@pytest.mark.parametrize("name", GOLDEN)
def test_logits_and_losses_are_the_released_ones(name, released):
    task, model, recorded = released(name)
    batch = {key[3:]: value for key, value in recorded.items() if key[:3] == "in/"}
    batch["labels"] = recorded[f"{name}/in/label_ids"]
    outputs = model(batch)
    logits = recorded[f"{name}/out/logits"].reshape(4, -1)
    np.testing.assert_allclose(outputs["logits"], logits, atol=2e-5)
    loss = loss_of(task, outputs, batch)
    assert loss == pytest.approx(recorded[f"{name}/out/loss"], abs=2e-5)
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
    loss = loss_of(task, outputs, filled)
    assert loss == pytest.approx(each[:2].mean(), abs=2e-5)


@pytest.mark.parametrize("name", GOLDEN)
def test_an_evaluation_has_the_released_figures(name, released):
    task, model, recorded = released(name)
    declared = GOLDEN[name]

    def found(key):
        value = recorded[f"{name}/eval_in/{key}"]
        return value.reshape(24, *value.shape[2:])

    real = found("is_real_example") == 1
    assert real.sum() == 22
    labels = found("label_ids")[real]
    words = labels if declared.labels is None else np.array(declared.labels)[labels]
    examples = [Example(str(n), "", None, word) for n, word in enumerate(words)]
    task.evaluation_splits = [Split("dev", examples, range(22))]
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
    loss = loss_of(task, outputs, batch)
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
