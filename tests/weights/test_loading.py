"""Weights move between formats, and no loss goes unnoticed."""

import dataclasses
import functools
import json
import re

import h5py
import keras
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from helpers import DATA, contents, read_tf1, refusal, slow_except, tiny, write_tf1

from albert_tf import weights
from albert_tf.model import models, optimizers
from albert_tf.model.config import AlbertConfig
from albert_tf.weights import loading
from albert_tf.weights.names import HEADS, Source, expand


def sized(**changes):
    sizes = {"embedding_size": 6, "num_hidden_layers": 2, "max_position_embeddings": 9}
    sizes |= {"type_vocab_size": 2, "initializer_range": 0.02}
    return tiny(**{**sizes, **changes})


CONFIG = sized(num_hidden_groups=2, inner_group_num=2)
SHARED = sized()

TOKENS = {
    "input_ids": np.array([[3, 22, 7, 7, 0, 14, 2], [5, 1, 9, 20, 11, 0, 0]], "int32"),
    "input_mask": np.array([[1] * 7, [1] * 5 + [0] * 2], "int32"),
    "segment_ids": np.array([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0, 0]], "int32"),
}
REAL = TOKENS["input_mask"] > 0

MODELS = {
    "encoder": models.AlbertEncoder,
    "pretrainer": models.AlbertPretrainer,
    "masked_lm": lambda config: models.AlbertPretrainer(config, sentence_head=False),
    "classifier": lambda config: models.AlbertClassifier(config, 5),
    "choice": models.AlbertMultipleChoice,
    "tokens": lambda config: models.AlbertTokenClassifier(config, 5),
    "span": models.AlbertSpanLabeler,
    "conditional": models.AlbertConditionalSpanLabeler,
}
# The file or folder that each format writes.
NAMES = {"tf1": "model.ckpt", "hf": "hf", "keras": "model.keras"}


def randomised(model, seed=0):
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        center = 1.0 if variable.name == "gamma" else 0.0
        variable.assign(center + 0.3 * rng.standard_normal(variable.shape))
    return model


def encoder(seed=0, **changes):
    return randomised(models.AlbertEncoder(sized(**changes)), seed)


def values(model):
    return [np.asarray(variable) for variable in model.trainable_variables]


def assert_equal(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def assert_same(model, other):
    assert_equal(values(model), values(other))


def assert_loads(model, path, **options):
    """Asserts that another such model gets the weights; returns the report."""
    copy = type(model).from_config(model.get_config())
    report = weights.load(copy, path, **options)
    assert_same(model, copy)
    return report


def max_difference(a, b):
    return np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max()


# --- round trips ---

HAS_NAMES = [(format, kind) for format in NAMES for kind in MODELS]
HAS_NAMES.remove(("hf", "conditional"))
# Keras saves all models in one way, so the rest are those with options.
KERAS = [("keras", kind) for kind in ("encoder", "masked_lm", "classifier")]
FAST = KERAS + [case for case in HAS_NAMES if case[0] != "keras"]


@pytest.fixture(scope="module")
def plain():
    """An encoder that several tests save; its values may be any."""
    return models.AlbertEncoder(SHARED)


@pytest.fixture(scope="module")
def written_model():
    """Makes a model of a kind, once for all formats; the encoder has groups."""

    def make(kind):
        config = CONFIG if kind == "encoder" else sized(num_hidden_layers=1)
        return randomised(MODELS[kind](config))

    return functools.cache(make)


@pytest.mark.parametrize("case", slow_except(FAST, HAS_NAMES), ids="-".join)
def test_round_trips_are_exact_and_find_the_model(case, written_model, tmp_path):
    format, kind = case
    model = written_model(kind)
    written = weights.save(model, tmp_path / NAMES[format], format)
    source = weights.open_source(written)
    assert source.config() == model.config
    copy = weights.model_for(source, model.config)
    if format == "keras":
        assert copy.get_config() == model.get_config()
    if format != "keras" and kind == "choice":  # one output looks like regression
        copy = type(model).from_config(model.get_config())
    assert type(copy) is type(model)
    weights.load(copy, source)
    assert_same(model, copy)


@pytest.mark.parametrize("format", ["tf1", "hf"])
def test_groups_that_hold_no_layer_have_no_weights(format, tmp_path):
    model = encoder(num_hidden_groups=4)
    written = weights.save(model, tmp_path / "a", format)
    source = weights.open_source(written)
    groups = [re.search(r"(?:group_|_groups\.)(\d+)", name) for name in source.shapes]
    assert {match[1] for match in groups if match} == {"0", "2"}
    assert source.config() == model.config
    copy = models.AlbertEncoder(source.config())
    weights.load(copy, written)
    assert_same(model, copy)
    assert len(model.blocks) == 2
    if format == "hf":  # transformers writes all four
        path = tmp_path / "a" / "model.safetensors"
        tensors = safetensors.numpy.load_file(path)
        for group in (3, 4):
            more = {
                name.replace("groups.2.", f"groups.{group}."): tensor
                for name, tensor in tensors.items()
            }
            safetensors.numpy.save_file({**tensors, **more}, path)
            if group == 3:
                assert weights.load(copy, written).unused == {}
        message = refusal(weights.load, copy, written)
        assert re.search(r"not in the model: .*groups\.4\.", message)
    # Layer by layer, its two groups are those of a model with two.
    two = encoder(num_hidden_groups=2)
    two.set_weights(model.get_weights())
    np.testing.assert_array_equal(
        model(TOKENS)["pooled_output"], two(TOKENS)["pooled_output"]
    )


# --- kinds of paths ---


def test_every_way_to_name_a_checkpoint_is_the_same(tmp_path):
    model = encoder()
    weights.save(model, f"{tmp_path}/run/", "tf1")
    assert list(contents(tmp_path / "run")) == [
        *("albert_config.json", "checkpoint", "model.ckpt-best.data-00000-of-00001"),
        "model.ckpt-best.index",
    ]
    assert assert_loads(model, tmp_path / "run").format == "tf1"
    prefix = f"{tmp_path}/run/model.ckpt-best"
    for end in ("", ".index", ".data-00000-of-00001"):
        assert weights.open_source(prefix + end).path == prefix


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("x_ckpt", "x_ckpt/model.ckpt-best"),
        ("ckpts", "ckpts"),
        ("ckpt-5", "ckpt-5"),
        ("a.ckpt", "a.ckpt"),
        ("my_ckpts.v2", "my_ckpts.v2/model.ckpt-best"),
    ],
)
def test_a_name_with_ckpt_inside_a_word_is_a_folder(path, prefix, plain, tmp_path):
    assert weights.save(plain, tmp_path / path, "tf1") == tmp_path / prefix
    assert (tmp_path / f"{prefix}.index").is_file()


@pytest.fixture
def run_folder(plain, tmp_path):
    """Makes a folder of a run: checkpoints 7 and 9, of which the best is 7."""
    folder = tmp_path / "run"
    weights.save(randomised(plain, 7), folder / "model.ckpt-7", "tf1")
    for suffix in ("index", "data-00000-of-00001"):
        best = (folder / f"model.ckpt-7.{suffix}").read_bytes()
        (folder / f"model.ckpt-best.{suffix}").write_bytes(best)
    weights.save(randomised(plain, 9), folder / "model.ckpt-9", "tf1")
    return folder


@pytest.mark.parametrize(
    ("name", "options", "read", "logged"),
    [
        ("", {}, "model.ckpt-best", "best"),
        ("", {"checkpoint": "best"}, "model.ckpt-best", "best"),
        ("", {"checkpoint": "newest"}, "model.ckpt-9", "newest"),
        ("model.ckpt-9", {}, "model.ckpt-9", None),
        ("model.ckpt-best", {"checkpoint": "newest"}, "model.ckpt-best", None),
    ],
)
def test_the_best_checkpoint_of_a_run(
    name, options, read, logged, run_folder, plain, caplog
):
    caplog.set_level("INFO", "albert_tf.weights.checkpoints")
    expected = values(randomised(plain, 7 if read == "model.ckpt-best" else 9))
    weights.load(randomised(plain), run_folder / name, **options)
    assert_equal(expected, values(plain))
    lines = [f"{run_folder}: reading its {logged} checkpoint, {read}"] if logged else []
    assert [record.getMessage() for record in caplog.records] == lines
    source = weights.open_source(run_folder / name, **options)
    assert source.path == str(run_folder / read)


def test_the_file_checkpoint_names_the_newest(run_folder):
    for suffix in ("index", "data-00000-of-00001"):
        (run_folder / f"model.ckpt-best.{suffix}").unlink()
    # Written on another machine.
    (run_folder / "checkpoint").write_text(
        'model_checkpoint_path: "/gone/away/model.ckpt-7"\n'
        'all_model_checkpoint_paths: "/gone/away/model.ckpt-9"\n'
    )
    assert weights.open_source(run_folder).path == str(run_folder / "model.ckpt-7")
    (run_folder / "model.ckpt-7.index").rename(run_folder / "moved")
    assert refusal(weights.open_source, run_folder) == (
        f"{run_folder}: expected 'model.ckpt-7', which its file `checkpoint` names; "
        f"found model.ckpt-9"
    )
    (run_folder / "moved").rename(run_folder / "model.ckpt-7.index")
    (run_folder / "checkpoint").unlink()
    assert refusal(weights.open_source, run_folder) == (
        f"{run_folder}: expected one set of weights (TF checkpoint, SavedModel, "
        f".safetensors or model.weights.h5; a pickle can run code and is not read); "
        f"found model.ckpt-7, model.ckpt-9"
    )


def test_a_tf1_hub_folder_is_read(tmp_path):
    model = encoder()
    tensors = read_tf1(weights.save(model, tmp_path / "ckpt", "tf1"))
    hub = tmp_path / "hub"
    module = {f"module/{name}": tensor for name, tensor in tensors.items()}
    write_tf1(hub / "variables" / "variables", module)
    (hub / "saved_model.pb").write_bytes(b"")
    (hub / "assets").mkdir()
    (hub / "assets/albert_config.json").write_text(SHARED.to_json_string())
    assert_loads(model, hub)
    assert weights.open_source(hub).config() == SHARED


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_safetensors_are_read(dtype, tmp_path):
    model, copy = encoder(), models.AlbertEncoder(SHARED)
    path = weights.save(model, tmp_path, "hf") / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    half = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
    safetensors.numpy.save_file(half, path)
    weights.load(copy, tmp_path)
    rounded = [x.astype(dtype).astype(np.float32) for x in values(model)]
    assert_equal(rounded, values(copy))


# --- strict both ways ---


def test_a_missing_weight_is_named_with_its_shape(tmp_path):
    model = models.AlbertPretrainer(SHARED)
    tensors = read_tf1(weights.save(model, tmp_path / "ckpt", "tf1"))
    del tensors["bert/pooler/dense/bias"]
    other = write_tf1(tmp_path / "other.ckpt", tensors)
    before = values(model)
    assert refusal(weights.load, model, other) == (
        f"{other} (tf1) does not fit AlbertPretrainer:\n"
        f"  not in the file: encoder.pooler.bias [12]"
    )
    assert_equal(before, values(model))
    report = weights.load(model, other, allow_missing=["encoder.pooler"])
    assert report.missing == {"encoder.pooler.bias": (12,)}


SHAPES_DIFFER = (
    "does not fit AlbertEncoder:\n"
    "  bert/embeddings/word_embeddings: shape [23, 6] in the file, [29, 6] by the "
    "configuration\n"
    "  bert/embeddings/position_embeddings: shape [9, 6] in the file, [8, 6] by the "
    "configuration"
)
LEFT_OVER = (
    "does not fit AlbertPretrainer:\n"
    "  not in the model: cls/seq_relationship/output_bias [2], "
    "cls/seq_relationship/output_weights [2, 12]"
)


@pytest.mark.parametrize(
    ("saved", "sizes", "loaded", "other_sizes", "options", "message"),
    [
        ("pretrainer", {}, "masked_lm", {}, {}, LEFT_OVER),
        (
            *("encoder", {}, "encoder"),
            *({"vocab_size": 29, "max_position_embeddings": 8}, {}, SHAPES_DIFFER),
        ),
        # Only the encoder is loaded, but all of it.
        (
            *("pretrainer", {"num_hidden_groups": 2}, "encoder", {}),
            *({"only": "encoder"}, "group_1"),
        ),
        (
            *("encoder", {}, "pretrainer", {}),
            *({"allow_missing": "masked_lm.transform"}, "file: masked_lm.norm.gamma"),
        ),
        (
            *("encoder", {}, "encoder", {"parameter_sharing": "none"}, {}),
            "not in the file: encoder.blocks.1.",
        ),
        (
            *("encoder", {"num_hidden_groups": 2}),
            *("encoder", {"parameter_sharing": "attention"}, {}),
            "same values as in the layers it is shared",
        ),
    ],
)
def test_mismatches(saved, sizes, loaded, other_sizes, options, message, tmp_path):
    model = randomised(MODELS[saved](sized(**sizes)))
    written = weights.save(model, tmp_path / "ckpt", "tf1")
    other = MODELS[loaded](sized(**other_sizes))
    before = values(other)
    refused = refusal(weights.load, other, written, **options)
    assert message in refused
    assert "cls/" not in refused or "cls/" in message
    assert_equal(before, values(other))


def test_only_the_encoder_is_loaded_when_asked(tmp_path, caplog):
    pretrainer = randomised(models.AlbertPretrainer(SHARED))
    written = weights.save(pretrainer, tmp_path / "ckpt", "tf1")
    classifier = models.AlbertClassifier(SHARED, 5)
    head = np.asarray(classifier.head.output_dense.kernel)
    report = weights.load(classifier, written, only="encoder")
    assert_same(pretrainer.encoder, classifier.encoder)
    np.testing.assert_array_equal(head, np.asarray(classifier.head.output_dense.kernel))
    assert set(report.unused) == {
        name for name in weights.open_source(written).shapes if name.startswith("cls/")
    }
    assert "cls/predictions/output_bias [23]" in caplog.text


@pytest.mark.parametrize(("sharing", "format"), [("attention", "tf1"), ("ffn", "hf")])
def test_half_shared_models_are_written_layer_by_layer(sharing, format, tmp_path):
    model = encoder(parameter_sharing=sharing)
    written = weights.save(model, tmp_path / "written", format)
    untied = weights.open_source(written).config()
    assert (untied.num_hidden_groups, untied.parameter_sharing) == (2, "all")
    plain = models.AlbertEncoder(untied)
    weights.load(plain, written)
    ours, theirs = (x(TOKENS)["sequence_output"] for x in (model, plain))
    np.testing.assert_array_equal(ours, theirs)
    assert_loads(model, written)


@pytest.mark.parametrize("format", ["tf1", "hf"])
def test_weights_of_a_diverged_training_are_named(format, tmp_path):
    model = encoder()
    model.pooler.bias.assign(np.full(12, np.nan))
    written = weights.save(model, tmp_path / "ckpt", format)
    other = models.AlbertEncoder(SHARED)
    before = values(other)
    message = refusal(weights.load, other, written)
    assert re.search("pooler.*bias holds NaN; expected numbers", message)
    assert_equal(before, values(other))


def test_no_projection_becomes_the_identity_for_hugging_face(tmp_path):
    model = encoder(embedding_size=12)
    path = weights.save(model, tmp_path, "hf") / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    projection = tensors["encoder.embedding_hidden_mapping_in.weight"]
    np.testing.assert_array_equal(projection, np.eye(12, dtype=np.float32))
    weights.load(model, tmp_path)
    projection[3, 4] = 0.5
    safetensors.numpy.save_file(tensors, path)
    message = refusal(weights.load, model, tmp_path)
    assert "expected the identity, because embedding_" in message


@pytest.mark.parametrize("format", NAMES)
def test_every_format_can_start_own_layers_from_shared_ones(format, tmp_path):
    shared = encoder(inner_group_num=2)
    written = weights.save(shared, tmp_path / NAMES[format], format)
    own = encoder(1, inner_group_num=2, parameter_sharing="none")
    weights.load(own, written, init_from_group0=True)
    assert len(own.blocks) == 4
    ours, theirs = (x(TOKENS)["sequence_output"] for x in (own, shared))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05: expected 1e-12"),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type='relative_key': expected 'absolute'",
        ),
        ({"hidden_size": "12"}, "hidden_size='12': expected an integer of at least 1"),
        (
            {"hidden_act": ["gelu"]},
            "model_type='albert' with hidden_act=\"['gelu']\": expected 'albert' with "
            "one of gelu_new, gelu_pytorch_tanh, gelu, relu, tanh, linear",
        ),
    ],
)
def test_hugging_face_settings_that_no_model_here_has(
    changes, message, plain, tmp_path
):
    path = weights.save(plain, tmp_path, "hf") / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    source = weights.open_source(tmp_path)
    assert refusal(source.config) == f"{path}: {message}"


# --- bad paths, and files that are damaged or of others ---


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone", "no such file, folder or checkpoint prefix"),
        ("gone.safetensors", "no such file, folder or checkpoint prefix"),
        ("gone/model.ckpt", "no such file, folder or checkpoint prefix"),
        ("notes.txt", "not a file of weights; expected a TF checkpoint's prefix or"),
    ],
)
def test_a_path_without_weights_is_refused(name, message, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    path = tmp_path / name
    assert refusal(weights.open_source, path).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("kind", "path", "format", "message"),
    [
        ("conditional", "", "hf", "format='hf' cannot hold these weights: "),
        ("encoder", "", "onnx", "format='onnx': expected one of tf1, hf, keras"),
        ("encoder", "ckpt", "keras", "{}/ckpt: format 'keras' needs a name that ends"),
    ],
)
def test_what_cannot_be_saved_is_refused(kind, path, format, message, tmp_path):
    refused = refusal(weights.save, MODELS[kind](SHARED), tmp_path / path, format)
    assert refused.startswith(message.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("saved", "damaged", "expected"),
    [
        ("ckpt", "ckpt.data-00000-of-00001", "a whole checkpoint, undamaged"),
        ("ckpt", "ckpt.index", "a readable checkpoint"),
        ("", "model.safetensors", "a readable safetensors file"),
        ("model.keras", "model.keras", "a readable .keras file"),
        ("model.weights.h5", "model.weights.h5", "a readable HDF5 file"),
    ],
)
def test_truncated_files_are_named(saved, damaged, expected, plain, tmp_path):
    if saved.endswith(".h5"):
        plain.save_weights(tmp_path / saved)
    else:
        format = {"ckpt": "tf1", "": "hf"}.get(saved, "keras")
        weights.save(plain, tmp_path / saved, format)
    before, path = values(randomised(plain, 1)), tmp_path / damaged
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    message = refusal(weights.load, plain, tmp_path / saved)
    assert message.startswith(str(tmp_path / saved)) and "\n" not in message
    assert message.endswith(f"; expected {expected}")
    assert_equal(before, values(plain))


def test_files_of_other_models_are_refused(tmp_path):
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    other.save_weights(tmp_path / "other.weights.h5")
    message = refusal(weights.open_source, tmp_path / "other.weights.h5")
    assert "not the weights of a KerasHub ALBERT" in message
    path = tmp_path / "model.keras"
    other.save(path)
    assert refusal(weights.open_source, path) == (
        f"{path}: holds a Sequential, expected one of {', '.join(HEADS)}"
    )
    written = weights.save(models.AlbertEncoder(SHARED), tmp_path / "run", "tf1")
    message = refusal(weights.load, other, written)
    assert message.startswith("Sequential: expected a model of this package: ")


@pytest.mark.parametrize(
    "graph",
    # A node whose child has number 127; no protocol buffer; no node at all.
    [b"\x0a\x06\x0a\x04\x08\x7f\x12\x00", b"\xff\xff", b""],
)
def test_a_damaged_object_graph_is_refused_in_one_line(graph, tmp_path):
    write_tf1(tmp_path / "ckpt", {"_CHECKPOINTABLE_OBJECT_GRAPH": np.array(graph)})
    message = refusal(weights.open_source, tmp_path / "ckpt")
    expected = "expected a checkpoint with a readable object graph"
    assert re.fullmatch(rf"{tmp_path}/ckpt: .*; {expected}", message)


@pytest.mark.parametrize("config", [None, {"vocabulary_size": 23}])
def test_an_incomplete_kerashub_configuration_is_named(config, tmp_path):
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file["layers/reversible_embedding/vars/0"] = np.ones((23, 6), np.float32)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"class_name": "AlbertBackbone", "config": config}))
    message = refusal(weights.open_source(tmp_path).config)
    assert re.match(f"{path}: .*; expected an AlbertBackbone with the keys v", message)


# --- the other programs ---


@pytest.fixture
def in_float64():
    """Computes in float64, where rounding by different kernels is negligible."""
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy("float32")


def test_recorded_outputs_of_hugging_face_are_reproduced(in_float64):
    folder = DATA / "huggingface"
    source = weights.open_source(folder)
    model = weights.model_for(source, source.config())
    weights.load(model, folder)
    recorded = np.load(folder / "outputs.npz")
    outputs = model({key: recorded[key] for key in TOKENS})
    for key in ("sequence_output", "mlm_logits", "sop_logits"):
        # The recording is rounded to float32.
        assert max_difference(outputs[key], recorded[key]) < 1e-5, key


KERASHUB_TOKENS = {
    "token_ids": TOKENS["input_ids"],
    "padding_mask": TOKENS["input_mask"],
    "segment_ids": TOKENS["segment_ids"],
}


@pytest.fixture
def kerashub():
    return pytest.importorskip("keras_hub").models


def kerashub_backbone(kerashub, **more):
    return kerashub.AlbertBackbone(
        vocabulary_size=23,
        num_layers=2,
        num_heads=3,
        embedding_dim=6,
        hidden_dim=12,
        intermediate_dim=20,
        dropout=0.0,
        max_sequence_length=9,
        **more,
    )


def test_kerashub_presets_load_with_equal_outputs(kerashub, tmp_path):
    backbone = kerashub_backbone(kerashub, num_groups=2, num_inner_repetitions=2)
    classifier = kerashub.AlbertTextClassifier(
        backbone, num_classes=5, preprocessor=None
    )
    randomised(classifier).save_to_preset(str(tmp_path / "preset"))
    assert weights.open_source(tmp_path / "preset").config() == CONFIG
    model = models.AlbertClassifier(CONFIG, 5)
    weights.load(model, tmp_path / "preset")
    theirs = classifier(KERASHUB_TOKENS)
    assert max_difference(model(TOKENS)["logits"], theirs) < 2e-5
    ours = np.asarray(model.encoder(TOKENS)["sequence_output"])
    theirs = np.asarray(backbone(KERASHUB_TOKENS)["sequence_output"])
    assert max_difference(ours[REAL], theirs[REAL]) < 2e-5
    other = models.AlbertClassifier(
        dataclasses.replace(CONFIG, num_attention_heads=4), 5
    )
    message = refusal(weights.load, other, tmp_path / "preset")
    assert "shape [12, 3, 4] in the file, [12, 4, 3]" in message


def test_kerashub_masked_lm_head_loads_with_equal_outputs(kerashub, tmp_path):
    backbone = kerashub_backbone(kerashub)
    task = randomised(kerashub.AlbertMaskedLM(backbone, preprocessor=None))
    # KerasHub's head normalises with 1e-5, not with the released 1e-12.
    task.get_layer("mlm_head")._intermediate_layer_norm.epsilon = 1e-12
    task.save_to_preset(str(tmp_path))
    model = models.AlbertPretrainer(SHARED, sentence_head=False)
    weights.load(model, tmp_path)
    positions = np.array([[1, 6], [0, 4]], "int32")
    theirs = task({**KERASHUB_TOKENS, "mask_positions": positions})
    ours = model({**TOKENS, "masked_lm_positions": positions})
    assert max_difference(ours["mlm_logits"], theirs) < 2e-5


def test_model_garden_checkpoints_load_with_equal_outputs(tmp_path):
    networks = pytest.importorskip("official.nlp.modeling.networks")
    theirs = networks.AlbertEncoder(
        vocab_size=23,
        embedding_width=6,
        hidden_size=12,
        num_layers=1,
        num_attention_heads=3,
        intermediate_size=20,
        max_sequence_length=9,
        type_vocab_size=2,
        dict_outputs=True,
    )
    rng = np.random.default_rng(0)
    for variable in theirs.variables:
        center = 1.0 if "gamma" in variable.name else 0.0
        variable.assign(center + 0.3 * rng.standard_normal(variable.shape))
    prefix = tf.train.Checkpoint(encoder=theirs).save(str(tmp_path / "ckpt"))
    tf.saved_model.save(theirs, str(tmp_path / "hub"))
    expected = theirs(
        {
            "input_word_ids": TOKENS["input_ids"],
            "input_mask": TOKENS["input_mask"],
            "input_type_ids": TOKENS["segment_ids"],
        }
    )
    for path in (prefix, tmp_path / "hub"):
        model = models.AlbertEncoder(sized(num_hidden_layers=1))
        assert weights.load(model, path).format == "model_garden"
        ours = model(TOKENS)
        assert max_difference(ours["pooled_output"], expected["pooled_output"]) < 2e-5
        pair = (np.asarray(x["sequence_output"])[REAL] for x in (ours, expected))
        assert max_difference(*pair) < 2e-5


# --- the state of an optimizer ---


def trained(model):
    """Returns an optimizer with random slots after 7 updates."""
    optimizer = optimizers.Lamb(0.1)
    optimizer.build(model.trainable_variables)
    rng = np.random.default_rng(0)
    for slot in slots(model, optimizer):
        slot.assign(rng.random(slot.shape))
    optimizer.iterations.assign(7)
    return optimizer


def slots(model, optimizer):
    return [
        slot
        for variable in model.trainable_variables
        for slot in optimizer.slots(variable).values()
    ]


def test_a_checkpoint_with_slots_looks_like_a_released_one(tmp_path):
    recorded = str(DATA / "pretrain_small_lamb5.ckpt")
    config = AlbertConfig.from_json_file(DATA / "model_small.config.json")
    model, optimizer = models.AlbertPretrainer(config), optimizers.Lamb(0.1)
    weights.load(model, recorded, optimizer=optimizer)
    assert int(optimizer.iterations) == 5
    written = weights.save(model, tmp_path / "ckpt", "tf1", optimizer=optimizer)
    theirs, ours = read_tf1(recorded), read_tf1(written)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert (ours[name].shape, ours[name].dtype) == (tensor.shape, tensor.dtype)
        np.testing.assert_array_equal(ours[name], tensor)


@pytest.mark.parametrize(
    ("sharing", "groups"), [("all", 1), ("attention", 2), ("none", 2)]
)
def test_slots_round_trip_into_an_optimizer_not_built_yet(sharing, groups, tmp_path):
    config = sized(parameter_sharing=sharing)
    model = randomised(models.AlbertClassifier(config, 5))
    optimizer = trained(model)
    written = weights.save(model, tmp_path, "tf1", optimizer=optimizer)
    names = weights.open_source(written).ignored
    key = "attention_1/self/key/kernel/adam_v"
    assert sum(name.endswith(key) for name in names) == groups
    copy, other = models.AlbertClassifier(config, 5), optimizers.AdamW(0.1)
    report = weights.load(copy, written, optimizer=other)
    assert_same(model, copy)
    assert int(other.iterations) == 7
    assert_equal(slots(model, optimizer), slots(copy, other))
    assert report.ignored == ()
    assert "head.output_dense.kernel.adam_m" in report.loaded


@pytest.mark.parametrize(("path", "format"), [("ckpt", "tf1"), (".", "hf")])
def test_a_file_without_any_slots_says_so(path, format, plain, tmp_path):
    written = weights.save(plain, tmp_path / path, format)
    message = refusal(weights.load, plain, written, optimizer=optimizers.Lamb(0.1))
    assert message == (
        f"{written} ({format}) holds no optimizer slots; expected a TF1 checkpoint "
        f"with <weight>/adam_m, <weight>/adam_v and global_step"
    )


def test_a_format_takes_only_what_it_can_hold(plain, tmp_path):
    for format, more in (("hf", {"optimizer": 1}), ("tf1", {"task": {"kind": "x"}})):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            weights.save(plain, tmp_path, format, **more)
    sgd = keras.optimizers.SGD(0.1)
    message = refusal(weights.save, plain, tmp_path, "tf1", optimizer=sgd)
    assert message.startswith("optimizer=SGD: expected one of albert_tf")
    assert list(tmp_path.iterdir()) == []


def test_the_head_of_tokens_which_the_release_lacks_has_a_name_of_its_own():
    targets = expand(MODELS["tokens"](CONFIG), "tf1")
    heads = {t.name: t.shape for t in targets if not t.name.startswith("bert/")}
    names = ("cls/tokens/output_weights", "cls/tokens/output_bias")
    assert heads == dict(zip(names, [(5, 12), (5,)], strict=True))


@pytest.mark.parametrize(
    ("head", "version"),
    [("cls/squad/output_bias", None), ("start_logits/dense/bias", "2.0")],
)
def test_a_head_of_squad_is_found_next_to_a_pretraining_head(head, version):
    shapes = {"cls/predictions/transform/dense/bias": (3,), head: (2,)}
    source = Source("tf1", "model.ckpt", shapes, shapes.get, lambda: CONFIG)
    task = loading.find_span_task(source)
    assert task["kind"] == "question_answering"
    assert task.get("version") == version
