"""The settings of `predict.py`."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.weights.settings import CheckpointSettings, ModelFileSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedModelSettings(CheckpointSettings, ModelFileSettings):
    """Which model answers."""

    model: str = flags.field(
        "Folder of a fine-tuning run, or one that convert_checkpoint.py wrote for ONNX "
        "Runtime or LiteRT; or weights of any format that it reads, or a name to "
        "download, such as albert_base_v2 or hf://owner/name."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictSettings(ServedModelSettings):
    """Which model, and where texts come from."""

    input_file: str | None = flags.field(
        "Texts, one row a line; columns between tabs, or JSON (.jsonl, .json), or a "
        "table with a header (.csv). By default the arguments, or else standard input.",
        None,
    )
    input_format: Literal["auto", "text", "json"] = flags.field(
        "Format of the input; auto goes by the file's name.", "auto"
    )
    encoding: str = flags.field(
        "Encoding of the input, such as cp1252; a byte order mark decides before it.",
        "utf-8",
    )
    output_file: str | None = flags.field(
        "Answers, as JSON lines; by default standard output.", None
    )
