import math

import keras
import numpy as np
import pytest
from keras import ops

from albert_tf import weights
from albert_tf.model import heads, models
from albert_tf.model.config import AlbertConfig

# The largest difference that counts as the same number in float32.
BOUND = 2e-5


def assert_near(ours, recorded):
    assert ours.shape == recorded.shape
    assert np.abs(ours - recorded).max() <= BOUND


@pytest.fixture
def released(data, write_checkpoint):
    """Makes a recorded fine-tuning model, loaded from a checkpoint."""

    def make(kind, recorded, section="", **options):
        config = AlbertConfig.from_json_file(data / "model_small.config.json")
        model = kind(config, **options)
        weights.load(model, write_checkpoint(recorded, section))
        return model

    return make


def inputs_of(recorded, *more):
    keys = ("input_ids", "input_mask", "segment_ids", *more)
    return {key: recorded[f"in/{key}"] for key in keys}


@pytest.mark.parametrize(
    ("file", "task", "kind", "options"),
    [
        ("heads_classifier", "mnli/", models.AlbertClassifier, {"num_labels": 3}),
        ("heads_classifier", "cola/", models.AlbertClassifier, {"num_labels": 2}),
        ("heads_classifier", "sts-b/", models.AlbertClassifier, {"num_labels": 1}),
        ("heads_race", "", models.AlbertMultipleChoice, {}),
    ],
)
def test_classifiers_give_the_released_numbers(
    file, task, kind, options, golden, released, arrays, assert_released_gradients
):
    recorded = golden(file)
    model = released(kind, recorded, task, **options)
    inputs = inputs_of(recorded)
    if kind is models.AlbertMultipleChoice:
        inputs = {key: x.reshape(3, 4, 24) for key, x in inputs.items()}
    loss = heads.regression_loss if task == "sts-b/" else heads.classification_loss

    def outputs():
        logits = model(inputs)["logits"]
        each = loss(logits, recorded[f"{task}in/label_ids"])
        return {"logits": logits, "per_example_loss": each, "loss": ops.mean(each)}

    ours = arrays(outputs())
    if task == "sts-b/":
        ours["logits"] = ours["logits"][:, 0]
    elif file == "heads_classifier":
        ours["probabilities"] = arrays(ops.softmax(ours["logits"]))
    for key, value in ours.items():
        assert_near(value, recorded[f"{task}out/{key}"])
    # One bias for all choices changes nothing.
    zeros = ("output_bias",) if file == "heads_race" else ()
    assert_released_gradients(model, lambda: outputs()["loss"], recorded, task, zeros)


def test_tokens_without_a_label_have_no_loss(arrays):
    logits = np.log(np.array([[[0.5, 0.25, 0.25], [0.125, 0.125, 0.75]]], "float32"))
    each = arrays(heads.token_classification_loss(logits, np.array([[1, -100]])))
    np.testing.assert_allclose(each, [[math.log(4), 0]], rtol=1e-6)


def test_every_token_is_classified_by_its_own_state(tiny, tokens, arrays):
    model = models.AlbertTokenClassifier(tiny(classifier_dropout_prob=0.3), 4)
    outputs = arrays(model(tokens()))
    head = model.head.output_dense
    kernel, bias = arrays([head.kernel, head.bias])
    expected = outputs["sequence_output"] @ kernel + bias
    assert outputs["logits"].shape == (2, 7, 4)
    np.testing.assert_allclose(outputs["logits"], expected, atol=BOUND)
    assert model.head.dropout.rate == 0.3


def test_span_labeler_as_released(golden, released, arrays, assert_released_gradients):
    recorded = golden("heads_squad")
    model = released(models.AlbertSpanLabeler, recorded, "v1/")

    def outputs_and_loss():
        outputs = model(inputs_of(recorded))
        start, end = outputs["start_logits"], outputs["end_logits"]
        positions = recorded["in/start_positions"], recorded["in/end_positions"]
        return start, end, sum(heads.span_loss(start, end, *positions)) / 2

    start, end, loss = arrays(outputs_and_loss())
    assert_near(start, recorded["v1/out/start_logits"])
    assert_near(end, recorded["v1/out/end_logits"])
    assert_near(loss, recorded["v1/out/loss"])
    assert_released_gradients(
        model, lambda: outputs_and_loss()[2], recorded, "v1/", zeros=("output_bias",)
    )


def test_conditional_span_training(golden, released, arrays, assert_released_gradients):
    recorded = golden("heads_squad")
    model = released(models.AlbertConditionalSpanLabeler, recorded, "v2_train/")

    def outputs_and_losses():
        outputs = model(inputs_of(recorded, "p_mask", "start_positions"))
        losses = heads.conditional_span_loss(
            outputs,
            recorded["in/start_positions"],
            recorded["in/end_positions"],
            recorded["in/is_impossible"],
        )
        names = ("start_loss", "end_loss", "regression_loss")
        parts = dict(zip(names, losses, strict=True))
        return {**outputs, **parts, "total_loss": sum(losses) / 2}

    ours = arrays(outputs_and_losses())
    names = ["start_log_probs", "end_log_probs", "cls_logits"]
    names += ["start_loss", "end_loss", "regression_loss", "total_loss"]
    for key in names:
        assert_near(ours[key], recorded[f"v2_train/out/{key}"])
    assert_released_gradients(
        model,
        lambda: outputs_and_losses()["total_loss"],
        recorded,
        "v2_train/",
        # Moving every logit of a softmax alike changes nothing.
        zeros=(
            "start_logits/dense/bias",
            "end_logits/LayerNorm/beta",
            "end_logits/dense_1/bias",
        ),
    )


def test_conditional_span_labeler_predicts_as_released(golden, released, arrays):
    recorded = golden("heads_squad")
    model = released(models.AlbertConditionalSpanLabeler, recorded, "v2_train/")
    inputs = inputs_of(recorded, "p_mask")
    ours = arrays(model(inputs))
    log_probs = ("start_log_probs", "start_top_log_probs", "end_top_log_probs")
    for key in (*log_probs, "cls_logits"):
        assert_near(ours[key], recorded[f"v2_predict/out/{key}"])
    # Candidates of the last row are ties: the lower index wins, on PyTorch any does.
    rows = 3 if keras.backend.backend() == "torch" else 4
    for key in ("start_top_index", "end_top_index"):
        expected = recorded[f"v2_predict/out/{key}"][:rows]
        np.testing.assert_array_equal(ours[key][:rows], expected)
    for candidate in range(5):
        starts = recorded["v2_predict/out/start_top_index"][:, candidate]
        end = arrays(model({**inputs, "start_positions": starts}))["end_log_probs"]
        assert_near(end, recorded["v2_predict/out/end_log_probs"][:, candidate])


# Two positions of three classes. exp(0) + exp(0) + exp(ln 2) is 4: the probabilities
# are 1/4, 1/4, 1/2, and 1/3 each where all logits are equal.
LOGITS = np.array([[[0, 0, math.log(2)], [5, 5, 5]]], "float32")


def test_masked_lm_loss_worked_by_hand(arrays):
    each = arrays(heads.masked_lm_loss(LOGITS, np.array([[2, 0]])))
    np.testing.assert_allclose(each, [[math.log(2), math.log(3)]], rtol=1e-6)


def test_masked_lm_loss_has_the_gradient_of_its_formula(arrays, differentiate):
    random = np.random.default_rng(7)
    # Logits so far apart that the probability of the label is 0 in float32.
    values = random.standard_normal((2, 3, 50)) * [[[1]], [[200]]]
    logits = keras.Variable(values.astype("float32"))
    ids, share = random.integers(0, 50, (2, 3)), random.random((2, 3))
    share = share.astype("float32")
    each = arrays(heads.masked_lm_loss(1.0 * logits, ids))
    powers = np.exp(values - values.max(-1, keepdims=True))
    shares = powers / powers.sum(-1, keepdims=True)
    own = np.take_along_axis(values, ids[..., None], -1)[..., 0]
    expected = values.max(-1) + np.log(powers.sum(-1)) - own
    assert expected.max() > 200
    np.testing.assert_allclose(each, expected, rtol=1e-5)
    [slope] = differentiate(
        lambda: ops.sum(heads.masked_lm_loss(1.0 * logits, ids) * share), [logits]
    )
    difference = shares - np.eye(50)[ids]
    np.testing.assert_allclose(slope, share[..., None] * difference, atol=1e-6)


def test_classification_loss_worked_by_hand(arrays):
    each = arrays(heads.classification_loss(LOGITS[0], np.array([1, 2])))
    np.testing.assert_allclose(each, [math.log(4), math.log(3)], rtol=1e-6)


def test_conditional_span_loss_worked_by_hand(arrays):
    # Log-odds of ln 3 say that there is no answer with probability 3/4; the first
    # question has none, the second has one.
    outputs = {
        "start_log_probs": np.log(np.array([[0.5, 0.5], [0.25, 0.75]], "float32")),
        "end_log_probs": np.log(np.array([[0.2, 0.8], [0.5, 0.5]], "float32")),
        "cls_logits": np.array([math.log(3), math.log(3)], "float32"),
    }
    start, end, answerable = arrays(
        heads.conditional_span_loss(
            outputs, np.array([0, 1]), np.array([1, 0]), np.array([1, 0])
        )
    )
    assert start == pytest.approx(-(math.log(0.5) + math.log(0.75)) / 2)
    assert end == pytest.approx(-(math.log(0.8) + math.log(0.5)) / 2)
    assert answerable == pytest.approx(-(math.log(0.75) + math.log(0.25)) / 2)


def test_regression_loss_worked_by_hand(arrays):
    logits = np.array([[1.0], [2.5], [-1.0]], "float32")
    each = arrays(heads.regression_loss(logits, np.array([3.0, 2.0, -1.0], "float32")))
    np.testing.assert_array_equal(each, [4, 0.25, 0])


def test_span_loss_worked_by_hand(arrays):
    starts, ends = LOGITS[:, 0], LOGITS[:, 1]
    start, end = arrays(heads.span_loss(starts, ends, [2], [0]))
    assert start == pytest.approx(math.log(2))
    assert end == pytest.approx(math.log(3))
