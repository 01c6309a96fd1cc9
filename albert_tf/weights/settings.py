"""Settings of all scripts that open a model.

The texts in "Args" are the texts of `--help`, and the first line of each class is a
heading there.
"""

import dataclasses
from typing import Literal

from albert_tf import flags

# The released notebook passes this placeholder for --spm_model_file, which the released
# script requires. The placeholder names no file.
_FROM_HUB = "from_tf_hub"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointSettings(flags.Settings):
    """Checkpoint of a run.

    Args:
        checkpoint: Checkpoint to use from a run's folder: best (falls back to newest if
            there is none) or newest. To use another one, give its path instead
            of the folder.
    """

    checkpoint: Literal["best", "newest"] = flags.field("best")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFileSettings(flags.Settings):
    """Config and vocabulary, if they are not in the folder of the weights.

    Args:
        albert_config_file: Model: an albert_config.json, or a published name such as
            albert_base_v2. Default: the file in the folder of the weights.
        spm_model_file: SentencePiece vocabulary (.model). Default: the one in the
            folder of the weights.
        vocab_file: WordPiece vocabulary (vocab.txt). Ignored if --spm_model_file is
            given.
        do_lower_case: Lower-case the text. Default: the setting of the model or of its
            vocabulary, or true.
        keep_accents: Keep accents and other combining marks, which the released code
            removes. Default: the setting of the model or of its vocabulary, or false.
    """

    albert_config_file: str | None = flags.field(None)
    spm_model_file: str | None = flags.field(None)
    vocab_file: str | None = flags.field(None)
    do_lower_case: bool | None = flags.field(None)
    keep_accents: bool | None = flags.field(None)

    @property
    def vocabularies(self) -> tuple[str | None, str | None]:
        """The files of --spm_model_file and --vocab_file; None for a missing one."""
        spm = None if self.spm_model_file == _FROM_HUB else self.spm_model_file
        return spm, self.vocab_file
