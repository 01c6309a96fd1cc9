"""The settings of `convert_checkpoint.py`."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.weights.settings import CheckpointSettings, ModelFileSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionSettings(CheckpointSettings, ModelFileSettings):
    """What to convert into what."""

    input: str = flags.field(
        "Weights to read: a TF1 checkpoint (prefix, .index file or folder), a TF-Hub "
        "or SavedModel folder, a Hugging Face folder or .safetensors file, a KerasHub "
        "preset folder, a .keras file, or a name to download, such as albert_base_v2 "
        "or hf://owner/name."
    )
    output: str = flags.field(
        "What to write: for tf1 a folder or a prefix such as out/model.ckpt, for hf a "
        "folder, for keras, litert and onnx a .keras, .tflite or .onnx file; for the "
        "last two also a folder, from which predict.py answers without TensorFlow."
    )
    output_format: Literal["tf1", "hf", "keras", "litert", "onnx"] = flags.field(
        "Format to write: tf1 is read by the released code, hf by transformers, litert "
        "by LiteRT (TensorFlow Lite) and onnx by ONNX Runtime."
    )
    precision: Literal["float32", "float16", "int8"] = flags.field(
        "How litert and onnx store the weights. With int8 products are rounded too; "
        "the check shows what that costs.",
        "float32",
    )
    allow_missing: tuple[str, ...] = flags.field(
        "Beginnings of weights that may be missing from the input and keep their "
        "initial values, such as encoder.pooler.",
        (),
    )
    vocab_size: int | None = flags.field(
        "Tokens of the output, to add some to a vocabulary: new ones, which come after "
        "the old, start near the mean of the old. --spm_model_file or --vocab_file "
        "names the new vocabulary.",
        None,
        at_least=1,
    )
    max_position_embeddings: int | None = flags.field(
        "Longest input of the output in tokens: new positions start as repetitions of "
        "the old.",
        None,
        at_least=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output.endswith((".keras", ".onnx", ".tflite")):
            names = ("spm_model_file", "vocab_file", "do_lower_case", "keep_accents")
            for name in names:
                if getattr(self, name) is not None:
                    raise InputError(
                        f"--{name} with output={self.output!r}: expected a folder, "
                        f"which has a vocabulary"
                    )
