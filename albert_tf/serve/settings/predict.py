"""The settings of `predict.py`."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.weights.settings import CheckpointSettings, ModelFileSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedModelSettings(CheckpointSettings, ModelFileSettings):
    """Model.

    Args:
        model: Folder of a fine-tuned model, or a folder that convert_checkpoint.py
            wrote for ONNX Runtime or LiteRT. Also weights in any format that
            convert_checkpoint.py reads, or a name to download, such as albert_base_v2
            or hf://owner/name. predict.py also takes several folders, separated by
            commas, or a pattern such as 'runs/mrpc/run-*': it averages their scores.
    """

    model: str = flags.field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictSettings(ServedModelSettings):
    """Input and output of the texts.

    Args:
        input_file: Input file with one example per line: tab-separated columns, JSON
            (.jsonl, .json), or a table with a header (.csv). Default: the arguments, or
            standard input.
        input_format: Format of the input. auto infers it from the file name.
        encoding: Encoding of the input, such as cp1252. A byte order mark has priority.
        output_file: Output file for the predictions, as JSON lines. Default: standard
            output.
    """

    input_file: str | None = flags.field(None)
    input_format: Literal["auto", "text", "json"] = flags.field("auto")
    encoding: str = flags.field("utf-8")
    output_file: str | None = flags.field(None)
