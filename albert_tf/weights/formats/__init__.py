"""The formats of weights; each module opens its format as a `Source`.

tf1        TF1 checkpoints, of the release and of albert_zh
tf2        TF2 checkpoints and SavedModels, of Model Garden and of this package
hf         Hugging Face's safetensors
kerashub   KerasHub's .weights.h5
keras      .keras files of this package
"""

from pathlib import Path
from types import ModuleType

from albert_tf.errors import InputError
from albert_tf.model.config import PUBLISHED
from albert_tf.weights import checkpoints, released
from albert_tf.weights.formats import hf, keras, kerashub, tf1
from albert_tf.weights.source import Source

_BY_SUFFIX = {".safetensors": hf, ".h5": kerashub, ".keras": keras}


def open_source(path: str | Path, checkpoint: str = "best") -> Source:
    """Recognises and opens weights; see `weights.load` for the formats.

    Args:
        path: a file, folder, checkpoint prefix or name.
        checkpoint: the checkpoint to open in a folder of TF1 checkpoints, "best" or
            "newest", see `checkpoints.choose`.

    Raises:
        InputError: the path does not exist, has an unknown format, or is damaged.
    """
    path = released.resolve(path)
    format = detect(path)
    if format is tf1 and path.is_dir() and not (path / "saved_model.pb").exists():
        path = checkpoints.choose(path, checkpoint)
    return format.open(path)


def detect(path: Path) -> ModuleType:
    """Returns the module of the format of a file, folder or checkpoint prefix.

    Raises:
        InputError: the path does not exist, or has an unknown format.
    """
    if path.is_dir():
        if (path / "saved_model.pb").exists():
            return tf1  # passes SavedModels and checkpoints of TF2 to `tf2`
        if any(path.glob("*.safetensors")):
            return hf
        if (path / "pytorch_model.bin").exists():
            raise InputError(
                f"{path}: pytorch_model.bin is a pickle, which is never read because "
                f"it can run code; save the model as safetensors"
            )
        return kerashub if (path / kerashub.BACKBONE).exists() else tf1
    if Path(f"{tf1.find_prefix(path)}.index").exists():
        return tf1
    if not path.exists():
        raise InputError(
            f"{path}: no such file, folder or checkpoint prefix, nor one of "
            f"{', '.join(PUBLISHED)}, hf://owner/name"
        )
    if path.suffix in _BY_SUFFIX:
        return _BY_SUFFIX[path.suffix]
    raise InputError(
        f"{path}: not a file of weights; expected a TF checkpoint's prefix or .index "
        f"file, .safetensors, .h5, .keras, or a folder"
    )
