import json
import math
from pathlib import Path

import pytest
from helpers import refusal

from albert_tf.model.config import AlbertConfig

RELEASED_DEFAULTS = {
    "embedding_size": 128,
    "hidden_size": 4096,
    "num_hidden_layers": 12,
    "num_hidden_groups": 1,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "inner_group_num": 1,
    "down_scale_factor": 1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}


def test_keys_and_defaults_are_those_of_the_release():
    assert AlbertConfig(23).to_dict() == {"vocab_size": 23, **RELEASED_DEFAULTS}


@pytest.mark.parametrize("name", ["model_small", "model_grouped"])
def test_a_released_file_survives_reading_and_writing(data, name, tmp_path):
    path = data / f"{name}.config.json"
    config = AlbertConfig.from_json_file(path)
    assert config.to_dict() == json.loads(path.read_text())
    (tmp_path / "again.json").write_text(config.to_json_string())
    assert AlbertConfig.from_json_file(tmp_path / "again.json") == config


def test_additions_are_written_only_when_they_are_set():
    config = AlbertConfig(23, parameter_sharing="ffn", recompute="block")
    assert config.to_dict() == {
        "vocab_size": 23,
        **RELEASED_DEFAULTS,
        "parameter_sharing": "ffn",
        "recompute": "block",
    }
    assert AlbertConfig.from_dict(config.to_dict()) == config


def test_json_is_sorted_indented_and_ends_the_line():
    text = AlbertConfig(23).to_json_string()
    assert text.startswith('{\n  "attention_probs_dropout_prob": 0,\n  "down_scale')
    assert text.endswith('  "vocab_size": 23\n}\n')
    assert list(json.loads(text)) == sorted(json.loads(text))


# H, L, N of paper table 1 (xlarge as its checkpoints have it), inner width,
# vocabulary, dropout, activation.
PUBLISHED = {
    "albert_base_v1": (768, 12, 12, 3072, 30000, 0.1, "gelu"),
    "albert_large_v1": (1024, 24, 16, 4096, 30000, 0.1, "gelu"),
    "albert_xlarge_v1": (2048, 24, 16, 8192, 30000, 0.1, "gelu"),
    "albert_xxlarge_v1": (4096, 12, 64, 16384, 30000, 0, "gelu"),
    "albert_base_v2": (768, 12, 12, 3072, 30000, 0, "gelu"),
    "albert_large_v2": (1024, 24, 16, 4096, 30000, 0, "gelu"),
    "albert_xlarge_v2": (2048, 24, 16, 8192, 30000, 0, "gelu"),
    "albert_xxlarge_v2": (4096, 12, 64, 16384, 30000, 0, "gelu"),
    "albert_base_zh": (768, 12, 12, 3072, 21128, 0, "relu"),
    "albert_large_zh": (1024, 24, 16, 4096, 21128, 0, "relu"),
    "albert_xlarge_zh": (2048, 24, 16, 8192, 21128, 0, "relu"),
    "albert_xxlarge_zh": (4096, 12, 16, 16384, 21128, 0, "relu"),
    # Sizes of albert_zh, without weights.
    "albert_tiny": (312, 4, 12, 1248, 30000, 0, "gelu"),
    "albert_small": (384, 6, 12, 1536, 30000, 0, "gelu"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_named_sizes_are_the_published_ones(name):
    hidden, layers, heads, inner, vocabulary, dropout, activation = PUBLISHED[name]
    assert AlbertConfig.named(name).to_dict() == {
        **RELEASED_DEFAULTS,
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "hidden_act": activation,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }


@pytest.mark.parametrize("layers", [12, 24])
def test_group_of_a_layer_is_the_released_one_at_published_depths(layers):
    for groups in range(1, layers + 1):
        config = AlbertConfig(23, num_hidden_layers=layers, num_hidden_groups=groups)
        released = [int(layer / layers * groups) for layer in range(layers)]
        assert config.attention_map == tuple(released)


RATE = "expected a rate of at least 0 and below 1"
SIZE = "expected an integer of at least 1"
REFUSALS = [
    ({"vocab_size": 0}, f"vocab_size=0: {SIZE}"),
    ({"vocab_size": "23"}, f"vocab_size='23': {SIZE}"),
    ({"hidden_size": 12.0}, f"hidden_size=12.0: {SIZE}"),
    ({"inner_group_num": True}, f"inner_group_num=True: {SIZE}"),
    (
        {"hidden_act": "swish"},
        "hidden_act='swish': expected one of gelu, gelu_erf, relu, tanh, linear, None",
    ),
    (
        {"parameter_sharing": None},
        "parameter_sharing=None: expected one of all, attention, ffn, none",
    ),
    ({"recompute": "layer"}, "recompute='layer': expected one of none, block"),
    ({"initializer_range": None}, "initializer_range=None: expected a number"),
    ({"initializer_range": 0}, "initializer_range=0: expected a number above 0"),
    (
        {"initializer_range": math.inf},
        "initializer_range=inf: expected a number above 0",
    ),
    ({"hidden_dropout_prob": "0.1"}, "hidden_dropout_prob='0.1': expected a number"),
    ({"hidden_dropout_prob": 1}, f"hidden_dropout_prob=1: {RATE}"),
    ({"classifier_dropout_prob": -0.1}, f"classifier_dropout_prob=-0.1: {RATE}"),
    (
        {"attention_probs_dropout_prob": math.nan},
        f"attention_probs_dropout_prob=nan: {RATE}",
    ),
    (
        {"hidden_size": 12, "num_attention_heads": 5},
        "hidden_size=12 is not a multiple of num_attention_heads=5",
    ),
    (
        {
            **{"num_hidden_layers": 7, "num_hidden_groups": 3},
            "parameter_sharing": "none",
        },
        "parameter_sharing='none' gives every layer its own parameters, but "
        "num_hidden_groups=3 asks for groups; expected 1 or num_hidden_layers=7",
    ),
]


@pytest.mark.parametrize(("values", "message"), REFUSALS, ids=str)
def test_impossible_values_are_refused(values, message):
    assert refusal(AlbertConfig, **{"vocab_size": 23, **values}) == message


def test_unknown_and_missing_keys_are_refused():
    values = {"vocab_size": 23, "hiden_size": 12}
    assert refusal(AlbertConfig.from_dict, values) == (
        "unknown configuration key 'hiden_size' with value 12; known: "
        "attention_probs_dropout_prob, classifier_dropout_prob, down_scale_factor, "
        "embedding_size, hidden_act, hidden_dropout_prob, hidden_size, "
        "initializer_range, inner_group_num, intermediate_size, "
        "max_position_embeddings, num_attention_heads, num_hidden_groups, "
        "num_hidden_layers, parameter_sharing, recompute, type_vocab_size, vocab_size"
    )
    message = refusal(AlbertConfig.from_dict, {"hidden_size": 12})
    assert message == "the configuration has no 'vocab_size'"


def test_a_name_is_a_file_or_else_a_published_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "albert_base_v2"
    assert AlbertConfig.find(name) == AlbertConfig.named(name)
    own = AlbertConfig(vocab_size=23)
    Path(name).write_text(own.to_json_string())
    assert AlbertConfig.find(name) == own
    assert refusal(AlbertConfig.find, "albert_bse") == (
        f"albert_bse: not a configuration; expected a file, or one of "
        f"{', '.join(PUBLISHED)}"
    )


FILES = {
    "absent": (None, ": No such file or directory; expected a readable file"),
    "broken": ('{"vocab_size": ', ":1: not JSON: Expecting value (column 16)"),
    "list": ("[23]", ": expected a JSON object, got [23]"),
    "null": ("null", ": expected a JSON object, got null"),
    "deep": ("[" * 9999, ":1: not JSON that can be read: nested too deeply"),
    "latin": (b"\xff", ":1: not UTF-8 at byte 0 of the line"),
    "zero": ('{"vocab_size": 0}', ": vocab_size=0: expected an integer of at least 1"),
}


@pytest.mark.parametrize(("text", "message"), FILES.values(), ids=FILES)
def test_unusable_files_are_refused_with_their_path(text, message, tmp_path):
    path = tmp_path / "albert_config.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert refusal(AlbertConfig.from_json_file, path) == f"{path}{message}"


def test_keys_of_bert_are_ignored_with_one_warning(caplog):
    of_release = dict.fromkeys(
        ("gap_size", "net_structure_type", "num_memory_blocks"), 0
    )
    of_release["layers_to_keep"] = []
    of_bert = {"directionality": "bidi", "ln_type": "postln", "pooler_fc_size": 768}
    values = {"vocab_size": 30, **of_bert, "pooler_type": "first_token_transform"}
    assert AlbertConfig.from_dict({**values, **of_release}) == AlbertConfig(30)
    assert [record.getMessage() for record in caplog.records] == [
        "configuration keys without effect: directionality, ln_type, pooler_fc_size, "
        "pooler_type"
    ]
    message = refusal(AlbertConfig.from_dict, {**values, "ln_type": "preln"})
    assert message == "ln_type=\"preln\": expected 'postln'"
