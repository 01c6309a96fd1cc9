"""The settings of `convert_checkpoint.py`."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.weights.settings import CheckpointSettings, ModelFileSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionSettings(CheckpointSettings, ModelFileSettings):
    """Input and output.

    Args:
        input: Weights to read: a TF1 checkpoint (prefix, .index file or folder), a
            TF-Hub or SavedModel folder, a Hugging Face folder or .safetensors file, a
            KerasHub preset folder, a .keras file, or a name to download, such as
            albert_base_v2 or hf://owner/name.
        output: Output path. tf1: a folder or a prefix such as out/model.ckpt. hf: a
            folder. keras: a .keras file. litert, onnx: a .tflite or .onnx file, or a
            folder, which predict.py can use without TensorFlow.
        output_format: Output format: tf1 for the released code, hf for transformers,
            keras for Keras, litert for LiteRT (TensorFlow Lite), onnx for ONNX Runtime.
        precision: Precision of the weights in litert and onnx. int8 also rounds the
            matrix products; the check after the conversion shows the difference.
        allow_missing: Prefixes of weights that may be missing from the input, such as
            encoder.pooler. Missing weights keep their initial values.
        vocab_size: Number of tokens of the output model, to extend a vocabulary. New
            tokens come last and start near the mean of the old ones. --spm_model_file
            or --vocab_file is the new vocabulary.
        max_position_embeddings: Maximum number of positions of the output model. New
            positions start as copies of the old ones.
    """

    input: str = flags.field()
    output: str = flags.field()
    output_format: Literal["tf1", "hf", "keras", "litert", "onnx"] = flags.field()
    precision: Literal["float32", "float16", "int8"] = flags.field("float32")
    allow_missing: tuple[str, ...] = flags.field(())
    vocab_size: int | None = flags.field(None, at_least=1)
    max_position_embeddings: int | None = flags.field(None, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        is_weights = self.output_format in ("tf1", "hf", "keras")
        if is_weights and self.precision != "float32":
            raise InputError(
                f"--precision={self.precision}: only for --output_format=litert or onnx"
            )
        if self.output.endswith((".keras", ".onnx", ".tflite")):
            names = ("spm_model_file", "vocab_file", "do_lower_case", "keep_accents")
            for name in names:
                if getattr(self, name) is not None:
                    raise InputError(
                        f"--{name} with --output={self.output!r}: a file has no "
                        f"vocabulary; pass a folder"
                    )
