"""The formats of weights; each module opens its format as a `Source`.

tf         checkpoints of TF1 and TF2, and SavedModels
hf         Hugging Face's safetensors
kerashub   KerasHub's .weights.h5
keras      .keras files of this package
"""

from pathlib import Path

from albert_tf.errors import InputError
from albert_tf.model.config import PUBLISHED
from albert_tf.weights import checkpoints, released
from albert_tf.weights.formats import hf, keras, kerashub, tf
from albert_tf.weights.names import Source

# The module for a file, by its suffix; the module for a folder, by a file in it. Here
# `keras` and `tf` are modules of this package, not Keras and TensorFlow.
_BY_SUFFIX = {".safetensors": hf, ".h5": kerashub, ".keras": keras}
_BY_FILE = {"saved_model.pb": tf, "*.safetensors": hf, kerashub.BACKBONE: kerashub}


def open_source(path: str | Path, checkpoint: str = "best") -> Source:
    """Recognises the format of weights, and opens them.

    Args:
        path: a file, folder, checkpoint prefix or name, as for `weights.load`.
        checkpoint: the checkpoint to open in a folder of TF1 checkpoints: "best" (or
            the newest if there is none) or "newest".

    Raises:
        InputError: the path does not exist, has an unknown format, or is damaged.
    """
    path = released.resolve(path)
    if path.is_dir():
        for pattern, format in _BY_FILE.items():
            if any(path.glob(pattern)):
                return format.open(path)
        return tf.open(checkpoints.choose(path, checkpoint))
    if Path(f"{tf.find_prefix(path)}.index").exists():
        return tf.open(path)
    if not path.exists():
        raise InputError(
            f"{path}: no such file, folder or checkpoint prefix, nor one of "
            f"{', '.join(PUBLISHED)}, hf://owner/name"
        )
    if path.suffix not in _BY_SUFFIX:
        raise InputError(
            f"{path}: not a file of weights; expected a TF checkpoint's prefix or "
            f".index file, .safetensors, .h5, .keras, or a folder"
        )
    return _BY_SUFFIX[path.suffix].open(path)
