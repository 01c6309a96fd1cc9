"""The exported modules, loaded in a program that cannot import this package."""

import contextlib
import dataclasses
import io

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import DATA, read_tf1

from albert_tf import weights
from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.serve import hub
from albert_tf.text import inputs

VOCABULARY = DATA / "spm_small.model"
TEXTS = ["The river rose.", "A cat sat in 1,995, ﬁne", "", "nobody " * 9]
SECOND = ["", "the end", "why?", "a " * 9]
TOKENS = {
    "input_word_ids": np.array([[2, 14, 194, 84, 3, 7], [2, 9, 3, 0, 0, 0]], "int32"),
    "input_mask": np.array([[1] * 6, [1] * 3 + [0] * 3], "int32"),
    "input_type_ids": np.array([[0, 0, 0, 1, 1, 1], [0] * 6], "int32"),
}
POSITIONS = np.array([[1, 4, 0], [1, 0, 2]], "int32")
OURS = dict(zip(TOKENS, ("input_ids", "input_mask", "segment_ids"), strict=True))

LOAD = """
import keras, numpy as np, tensorflow as tf, tensorflow_hub, tensorflow_text, tf_keras
encoder_path, preprocess_path, given, out = sys.argv[1:]
given = dict(np.load(given, allow_pickle=False))
texts, second = (tf.constant(given.pop(name)) for name in ("texts", "second"))
positions = tf.constant(given.pop("positions"))
# After its optimization, a graph gives the same outputs.
tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
tokens = {name: tf.constant(value) for name, value in given.items()}
results = {}
def keep(prefix, outputs):
    for name, value in outputs.items():
        for i, x in enumerate(value if isinstance(value, list) else [value]):
            results[f"{prefix}/{name}/{i}"] = np.asarray(x)

encoder = tensorflow_hub.load(encoder_path)
keep("load", encoder(tokens))
keep("mlm", encoder.mlm({**tokens, "masked_lm_positions": positions}))
keep("sop", encoder.sop(tokens))
keep("signature", encoder.signatures["serving_default"](**tokens))
keep("dropped", encoder(tokens, training=True))
keep("dropped_again", encoder(tokens, training=True))
both = keras.layers.TFSMLayer(encoder_path, call_training_endpoint="serve_training")
keep("tfsm", both(tokens))
keep("tfsm_dropped", both(tokens, training=True))
results["tfsm_weights"] = len(both.trainable_weights)
by_name = keras.layers.TFSMLayer(encoder_path, call_endpoint="serving_default")
keep("tfsm_signature", by_name(tokens))
symbols = {n: keras.Input((None,), dtype="int32", name=n) for n in tokens}
keep("tfsm_model", keras.Model(symbols, by_name(symbols))(tokens))
with tf.GradientTape() as tape:
    outputs = encoder.mlm({**tokens, "masked_lm_positions": positions})
    loss = tf.reduce_sum(outputs["mlm_logits"] ** 2)
for i, x in enumerate(tape.gradient(loss, encoder.mlm.trainable_variables)):
    results[f"gradient/{i}"] = x.numpy()
results["regularization"] = len(encoder.regularization_losses)

preprocess = tensorflow_hub.load(preprocess_path)
keep("texts", preprocess(texts))
ids, other = preprocess.tokenize(texts), preprocess.tokenize(second)
results["ids"], results["splits"] = ids.values.numpy(), ids.row_splits.numpy()
keep("pair", preprocess.bert_pack_inputs([ids, other], seq_length=11))
by_word = tf.RaggedTensor.from_row_lengths(ids, [1, 2, 0, 1])
keep("by_word", preprocess.bert_pack_inputs([by_word], seq_length=tf.constant(7)))
keep("special", preprocess.tokenize.get_special_tokens_dict())

text = tf_keras.layers.Input((), dtype=tf.string)
cut = tensorflow_hub.KerasLayer(preprocess.tokenize)(text)
packed = tensorflow_hub.KerasLayer(
    preprocess.bert_pack_inputs, arguments={"seq_length": 11})([cut])
layer = tensorflow_hub.KerasLayer(encoder, trainable=True)
scores = tf_keras.layers.Dense(3)(layer(packed)["pooled_output"])
model = tf_keras.Model(text, scores)
loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, run_eagerly=True)
before = [x.numpy() for x in layer.trainable_weights]
model.fit(texts, tf.constant([0, 1, 2, 1]), epochs=1, verbose=0)
changed = [(a != b.numpy()).any() for a, b in zip(before, layer.trainable_weights)]
results["changed"] = np.array(changed)
np.savez(out, **results)
"""


@pytest.fixture(scope="module")
def config(tiny):
    return tiny(vocab_size=1500, num_hidden_layers=2, hidden_dropout_prob=0.3)


@pytest.fixture(scope="module")
def model(config):
    keras.utils.set_random_seed(3)
    return models.AlbertPretrainer(config)


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    """A checkpoint, exported with the released flags."""
    folder = tmp_path_factory.mktemp("hub")
    weights.save(model, folder / "albert/model.ckpt-best", "tf1")
    (folder / "albert/30k-clean.model").write_bytes(VOCABULARY.read_bytes())
    flags = {"checkpoint_name": "model.ckpt-best", "do_lower_case": True}
    flags |= {"albert_directory": f"{folder}/albert", "use_einsum": True}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        hub.export(hub.HubSettings(**flags, export_path=f"{folder}/module/"))
    assert printed.getvalue().splitlines() == [
        f"read     {folder}/albert/model.ckpt-best",
        f"written  {folder}/module: the encoder, .mlm and .sop, "
        f"{model.count_params():,} parameters",
        f"written  {folder}/module_preprocess: 1,500 tokens",
    ]
    return folder


@pytest.fixture(scope="module")
def loaded(folder, without_package):
    """The outputs of the modules in a program without this package."""
    given = {"texts": np.array([t.encode() for t in TEXTS]), "positions": POSITIONS}
    second = np.array([t.encode() for t in SECOND])
    np.savez(folder / "given.npz", **given, **TOKENS, second=second)
    names = ("module", "module_preprocess", "given.npz", "out.npz")
    without_package(LOAD, *(folder / name for name in names))
    return dict(np.load(folder / "out.npz"))


def part(results, prefix):
    start = f"{prefix}/"
    return {k.removeprefix(start): x for k, x in results.items() if k.startswith(start)}


def largest(found, expected):
    assert found.shape == tuple(expected.shape)
    return np.abs(found - np.asarray(expected)).max()


SIGNATURES = ["signature", "tfsm_signature", "tfsm_model"]


@pytest.mark.parametrize("way", ["load", "mlm", "sop", "tfsm", *SIGNATURES])
def test_outputs_are_those_of_the_source(way, model, loaded):
    ours = {OURS[name]: value for name, value in TOKENS.items()}
    expected = model({**ours, "masked_lm_positions": POSITIONS})
    found = part(loaded, way)
    names = {"default/0": "pooled_output", "pooled_output/0": "pooled_output"}
    names["sequence_output/0"] = "sequence_output"
    if way in ("mlm", "sop"):
        names[f"{way}_logits/0"] = f"{way}_logits"
    for key, name in names.items():
        assert largest(found.pop(key), expected[name]) < 1e-6, key
    layers = 0 if way in SIGNATURES else 2
    for i in range(layers):
        layer = found.pop(f"encoder_outputs/{i}")
        assert largest(layer, expected["encoder_outputs"][i]) < 1e-6
    assert not found


def test_training_draws_its_own_dropout(loaded):
    once, twice = part(loaded, "dropped"), part(loaded, "dropped_again")
    plain, tfsm = part(loaded, "load"), part(loaded, "tfsm_dropped")
    key = "sequence_output/0"
    for one, other in [(once, plain), (once, twice), (tfsm, plain)]:
        assert largest(one[key], other[key]) > 0.01


def test_gradients_are_those_of_the_source(model, loaded, differentiate):
    ours = {OURS[name]: value for name, value in TOKENS.items()}
    trained = [*model.encoder.trainable_variables, *model.masked_lm.trainable_variables]

    def loss():
        logits = model({**ours, "masked_lm_positions": POSITIONS})["mlm_logits"]
        return keras.ops.sum(keras.ops.square(logits))

    # The loss does not depend on the pooler, so its gradient is None.
    expected = [g for g in differentiate(loss, trained) if g.any()]
    found = [g for g in part(loaded, "gradient").values() if g.any()]
    assert len(found) == len(expected) > 20
    for ours, theirs in zip(found, expected, strict=True):
        assert largest(ours, theirs) < 1e-5 * np.abs(theirs).max() + 1e-6


def test_fine_tuning_changes_every_weight(model, loaded):
    count = len(model.encoder.trainable_variables)
    assert loaded["changed"].tolist() == [True] * count
    assert loaded["tfsm_weights"] == count
    assert loaded["regularization"] == 0


def test_preprocessing_has_the_ids_of_python(tokenizer, loaded):
    rows = np.split(loaded["ids"], loaded["splits"][1:-1])
    assert [row.tolist() for row in rows] == tokenizer.encode_batch(TEXTS)
    for key, second, cut, length in (
        ("texts", None, 17, 17),  # the maximum of the model
        ("pair", SECOND, 11, 11),
        ("by_word", None, 7, 7),
    ):
        texts = TEXTS
        if key == "by_word":
            texts = [TEXTS[0], " ".join(TEXTS[1:3]), "", TEXTS[3]]
        encoded = inputs.encode(tokenizer, texts, second, cut)
        expected = inputs.pad(encoded, range(4), length, tokenizer.pad_id)
        for name, value in part(loaded, key).items():
            ours = OURS[name.removesuffix("/0")]
            np.testing.assert_array_equal(value, expected[ours], key)
    special = {"vocab_size/0": 1500, "padding_id/0": 0, "start_of_sequence_id/0": 2}
    special |= {"end_of_segment_id/0": 3, "mask_id/0": 4}
    assert part(loaded, "special") == special


def test_our_modules_load_as_weights_again(model, folder):
    source = weights.open_source(folder / "module")
    copy = weights.model_for(source, source.config())
    assert type(copy) is models.AlbertPretrainer
    report = weights.load(copy, folder / "module")
    assert (report.format, report.missing, report.unused) == ("keras", {}, {})
    for ours, theirs in zip(copy.variables, model.variables, strict=True):
        if ours.trainable:
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    classifier = models.AlbertClassifier(model.config, 4)
    weights.load(classifier, folder / "module", only="encoder")
    with pytest.raises(InputError, match="does not fit AlbertClassifier"):
        weights.load(classifier, folder / "module")


def test_the_weights_are_stored_once(model, folder):
    stored = read_tf1(folder / "module/variables/variables").values()
    floats = [x for x in map(np.asarray, stored) if x.dtype == np.float32]
    assert sum(x.size for x in floats) == model.count_params()
    graph = (folder / "module/saved_model.pb").read_bytes()
    for kernel in model.trainable_variables:
        assert kernel.ndim < 2 or np.asarray(kernel).tobytes() not in graph
    names = ["module", "module_preprocess"]
    assert sorted(path.name for path in folder.glob("*module*")) == names


def test_an_encoder_alone_that_shares_attention_only(tokenizer, config, tmp_path):
    config = dataclasses.replace(config, parameter_sharing="attention")
    encoder = models.AlbertEncoder(config, dtype="mixed_bfloat16")
    hub.export_encoder(encoder, tokenizer, tmp_path / "module")
    module = tf.saved_model.load(str(tmp_path / "module"))
    outputs = module({name: tf.constant(x) for name, x in TOKENS.items()})
    assert outputs["default"].dtype == tf.float32
    assert not hasattr(module, "mlm") and not hasattr(module, "sop")
    copy = models.AlbertEncoder(config)
    weights.load(copy, tmp_path / "module")
    for ours, theirs in zip(copy.weights, encoder.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    source = weights.open_source(tmp_path / "module")
    assert type(weights.model_for(source, config)) is models.AlbertEncoder


def settings(folder, **more):
    return hub.HubSettings(
        albert_directory=str(folder), export_path=str(folder / "out"), **more
    )


def test_a_fine_tuned_model_gives_its_encoder(config, tmp_path, capsys, monkeypatch):
    exported = []
    monkeypatch.setattr(hub, "export_encoder", lambda *given: exported.append(given))
    monkeypatch.setattr(hub, "export_preprocessing", lambda *given: None)
    classifier = models.AlbertClassifier(config, 3)
    weights.save(classifier, tmp_path, "tf1")
    hub.export(settings(tmp_path, spm_model_file=str(VOCABULARY)))
    assert ": the encoder, " in capsys.readouterr().out
    [(encoder, _, path)] = exported
    assert type(encoder) is models.AlbertEncoder and path == f"{tmp_path}/out"
    for ours, theirs in zip(encoder.weights, classifier.encoder.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_what_cannot_be_exported_is_named(tmp_path, model, refuses):
    weights.save(model, tmp_path, "tf1")
    (tmp_path / "file").touch()
    exists = "exists and is no SavedModel; use a new folder"
    with refuses(f"{tmp_path}/file: {exists}"):
        hub.export(settings(tmp_path, preprocess_export_path=f"{tmp_path}/file"))
    flags = "--spm_model_file or --vocab_file"
    with refuses(f"no vocabulary in {tmp_path}: expected {flags}"):
        hub.export(settings(tmp_path))
    with pytest.raises(
        InputError, match="must be two folders, not one inside the other"
    ):
        hub.export(settings(tmp_path, preprocess_export_path=f"{tmp_path}/out/below"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    with refuses(f"{tmp_path}/out: {exists}"):
        hub.export(settings(tmp_path, spm_model_file=str(VOCABULARY)))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]
