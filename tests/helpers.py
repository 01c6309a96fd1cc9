"""Functions and paths that test files share."""

from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests/fixtures"
SMALL_MODEL = str(DATA / "spm_small.model")
SHARED = ROOT.parent / "shared"


def tiny(**changes):
    """Makes a config in which no two sizes are equal (D is 4)."""
    sizes = {
        "vocab_size": 23,
        "embedding_size": 8,
        "hidden_size": 12,
        "num_hidden_layers": 5,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "max_position_embeddings": 17,
        "type_vocab_size": 10,
        "initializer_range": 0.2,
    }
    return AlbertConfig(**{**sizes, **changes})


def slow_except(fast, cases):
    """Marks the cases of a parametrized test as slow, except those in `fast`."""
    assert set(fast) <= set(cases)
    return [c if c in fast else pytest.param(c, marks=pytest.mark.slow) for c in cases]


def refusal(call, *arguments, **options):
    """Returns the message of the InputError that a call raises."""
    with pytest.raises(InputError) as refused:
        call(*arguments, **options)
    return str(refused.value)


def contents(folder):
    """Returns {name: bytes} of the files in a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def write_tf1(prefix, tensors):
    """Writes a TF1 checkpoint; returns its prefix."""
    Path(prefix).parent.mkdir(parents=True, exist_ok=True)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    return str(prefix)


def read_tf1(prefix):
    """Returns the tensors of a TF1 checkpoint by name."""
    reader = tf.train.load_checkpoint(str(prefix))
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names}
