r"""Exports ALBERT as TF-Hub modules: the encoder, and preprocessing of raw text.

    python export_to_tfhub.py --albert_directory=albert_base_v2 \
        --export_path=albert_hub

docs/export.md shows how to load them.
"""

from albert_tf import flags
from albert_tf.serve.settings.hub import HubSettings

flags.define(HubSettings)


def main() -> None:
    """Exports what the flags say."""
    settings = flags.read(HubSettings)

    # TensorFlow takes seconds, which --help and mistakes in the flags need not wait.
    from albert_tf.serve import hub

    hub.export(settings)


if __name__ == "__main__":
    flags.run(main)
