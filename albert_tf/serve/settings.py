"""The settings of the scripts that serve and convert models.

In `--help`, the first line of a class is the heading of a group of flags, and `Args`
has the help text of each flag.
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.errors import InputError
from albert_tf.weights.settings import CheckpointSettings, ModelFileSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedModelSettings(CheckpointSettings, ModelFileSettings):
    """Model.

    Args:
        model: Folder of a fine-tuned model, or a folder that convert_checkpoint.py
            wrote for ONNX Runtime or LiteRT; or weights in any format that
            convert_checkpoint.py reads; or a name to download, such as albert_base_v2
            or hf://owner/name. predict.py averages the scores of several models if the
            value is a pattern such as 'runs/mrpc/run-*', or a list with commas.
    """

    model: str = flags.field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictSettings(ServedModelSettings):
    """Input and output of the texts.

    Args:
        input_file: Input file: JSON (.jsonl, .json), a table with a header (.csv), or a
            text file with one example per line, as tab-separated columns. Without this
            flag, each argument is an example. Without arguments, standard input is
            read.
        input_format: Format of the input. text is tab-separated columns, json is one
            JSON value per line. auto infers the format from the file name.
        encoding: Encoding of the input, such as cp1252. A byte order mark in the file
            has priority.
        output_file: Output file for the predictions, as JSON lines. Default: standard
            output.
    """

    input_file: str | None = flags.field(None)
    input_format: Literal["auto", "text", "json"] = flags.field("auto")
    encoding: str = flags.field("utf-8")
    output_file: str | None = flags.field(None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageSettings(ServedModelSettings):
    """Page.

    Args:
        host: Network address of the page. By default, only this machine can open it.
            With 0.0.0.0, every machine that can reach this one can use the model.
        port: Port of the page (0 for the first free port from 7860 on).
        open_browser: Open the page in the browser.
    """

    host: str = flags.field("127.0.0.1")
    port: int = flags.field(0, at_least=0, at_most=65535)
    open_browser: bool = flags.field(True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionSettings(CheckpointSettings, ModelFileSettings):
    """Input and output.

    Args:
        input: Weights to read: a TF1 checkpoint (prefix, .index file or folder), a
            TF-Hub or SavedModel folder, a Hugging Face folder or .safetensors file, a
            KerasHub preset folder, a .keras file, or a name to download, such as
            albert_base_v2 or hf://owner/name.
        output: Output path. For tf1, a folder or a prefix such as out/model.ckpt; for
            hf, a folder; for keras, a .keras file; for litert and onnx, a folder that
            predict.py can use without TensorFlow, or a single .tflite or .onnx file.
        output_format: Output format: tf1 for the released code, hf for transformers,
            keras for Keras, litert for LiteRT (TensorFlow Lite), onnx for ONNX Runtime.
        precision: Precision of the weights in litert and onnx. int8 also rounds the
            inputs of matrix products. The check after the conversion shows the error.
        allow_missing: Beginnings of names of weights that may be missing from the
            input, such as encoder.pooler. Missing weights keep their initial values.
        vocab_size: Number of tokens of the output model, to extend the vocabulary. The
            extended vocabulary is the file of --spm_model_file or --vocab_file. The new
            tokens must come last. Their weights start near the mean of the old ones.
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
        is_graph = self.output_format in ("litert", "onnx")
        if self.precision != "float32" and not is_graph:
            raise InputError(
                f"--precision={self.precision}: only for --output_format=litert or onnx"
            )
        if self.output.endswith((".keras", ".onnx", ".tflite")):
            names = ("spm_model_file", "vocab_file", "do_lower_case", "keep_accents")
            for name in names:
                if getattr(self, name) is not None:
                    raise InputError(
                        f"--{name} with --output={self.output!r}: only for an output "
                        f"folder, because a file has no vocabulary"
                    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubSettings(CheckpointSettings, ModelFileSettings):
    """Input and output.

    Args:
        albert_directory: Folder with weights in any format that convert_checkpoint.py
            reads, albert_config.json and the vocabulary; or a name to download, such as
            albert_base_v2.
        checkpoint_name: Name of the weights in the folder of --albert_directory, such
            as model.ckpt-40. Without this flag, --checkpoint selects the weights.
        use_einsum: Unused; kept for compatibility. The export has no Einsum operations.
        export_path: Output folder of the encoder; it is created.
        preprocess_export_path: Output folder of the preprocessing model. Default:
            --export_path with the suffix _preprocess.

    Raises:
        InputError: both --checkpoint_name and --checkpoint are given.
    """

    albert_directory: str = flags.field()
    checkpoint_name: str | None = flags.field(None, excludes=("checkpoint",))
    use_einsum: bool = flags.field(True)
    export_path: str = flags.field()
    preprocess_export_path: str | None = flags.field(None)
