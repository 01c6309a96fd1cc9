"""Settings that every script shares that opens a model."""

import dataclasses
from typing import Literal

from albert_tf import flags

# The placeholder that the released notebook gives for a required flag.
_FROM_HUB = "from_tf_hub"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointSettings(flags.Settings):
    """Which checkpoint of a run."""

    checkpoint: Literal["best", "newest"] = flags.field(
        "Checkpoint to read where the weights are the folder of a run: best (the "
        "newest where there is no best), or newest; the path of a checkpoint names any "
        "other.",
        "best",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFileSettings(flags.Settings):
    """The files of a model, where they are not those beside the weights."""

    albert_config_file: str | None = flags.field(
        "The model: an albert_config.json, or a published name (albert_base_v2 ...); "
        "by default the file beside the weights.",
        None,
    )
    spm_model_file: str | None = flags.field(
        "SentencePiece vocabulary (.model); by default the one beside the weights.",
        None,
    )
    vocab_file: str | None = flags.field(
        "WordPiece vocabulary (vocab.txt); not used where --spm_model_file is given.",
        None,
    )
    do_lower_case: bool | None = flags.field(
        "Lower-case the text; by default as the model's folder or the vocabulary does, "
        "or else true.",
        None,
    )
    keep_accents: bool | None = flags.field(
        "Keep combining marks, which the release drops; by default as the model's "
        "folder or the vocabulary does, or else false.",
        None,
    )

    @property
    def vocabularies(self) -> tuple[str | None, str | None]:
        """The named files, of SentencePiece and of WordPiece."""
        spm = None if self.spm_model_file == _FROM_HUB else self.spm_model_file
        return spm, self.vocab_file
