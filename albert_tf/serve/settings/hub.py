"""The settings of `export_to_tfhub.py`."""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.weights.checkpoint_flag import CHECKPOINT_HELP


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubSettings(flags.Settings):
    """What to export, and where to.

    Raises:
        InputError: the checkpoint is named twice.
    """

    albert_directory: str = flags.field(
        "Folder with weights of any format that convert_checkpoint.py reads, "
        "albert_config.json and the vocabulary."
    )
    checkpoint: Literal["best", "newest"] = flags.field(CHECKPOINT_HELP, "best")
    checkpoint_name: str | None = flags.field(
        "The weights in that folder, such as model.ckpt-40; by default --checkpoint "
        "decides.",
        None,
        instead_of=("checkpoint",),
    )
    do_lower_case: bool | None = flags.field(
        "Lower-case text; by default as the folder or the vocabulary does, or true.",
        None,
    )
    keep_accents: bool | None = flags.field(
        "Keep combining marks, which the release drops; by default as the folder or "
        "the vocabulary does, or else false.",
        None,
    )
    use_einsum: bool = flags.field(
        "Accepted for the commands of the released code, and without effect: no "
        "Einsum operation is ever exported.",
        True,
    )
    spm_model_file: str | None = flags.field(
        "SentencePiece model, where it is not the one .model file in the folder.", None
    )
    vocab_file: str | None = flags.field(
        "WordPiece vocabulary, where it is not vocab.txt in the folder.", None
    )
    export_path: str = flags.field("Folder of the encoder; is made.")
    preprocess_export_path: str | None = flags.field(
        "Folder of the preprocessing; by default --export_path with _preprocess added.",
        None,
    )
