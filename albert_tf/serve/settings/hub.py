"""The settings of `export_to_tfhub.py`."""

import dataclasses

from albert_tf import flags
from albert_tf.weights.settings import CheckpointSettings, ModelFileSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubSettings(CheckpointSettings, ModelFileSettings):
    """Input and output.

    Args:
        albert_directory: Folder with weights in any format that convert_checkpoint.py
            reads, albert_config.json and the vocabulary; or a name to download, such as
            albert_base_v2.
        checkpoint_name: Name of the weights in that folder, such as model.ckpt-40.
            Default: chosen by --checkpoint.
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
