"""Exports ALBERT as TF-Hub modules: the encoder, and the preprocessing of raw text.

    python export_to_tfhub.py --albert_directory=albert_base --export_path=albert_hub

docs/export.md shows how to load them.
"""

from albert_tf import flags
from albert_tf.hub import HubSettings, export


def main() -> None:
    """Exports what the flags say."""
    export(flags.read(HubSettings))


if __name__ == "__main__":
    flags.define(HubSettings)
    flags.run(main)
