r"""Exports ALBERT as TF-Hub modules: the encoder, and preprocessing of raw text.

    python export_to_tfhub.py --albert_directory=albert_base_v2 \
        --export_path=albert_hub

docs/export.md shows how to load the modules.
"""

from albert_tf.serve.settings import HubSettings

SETTINGS = (HubSettings,)


def main(settings: HubSettings) -> None:
    """Exports the modules."""
    from albert_tf.serve import hub

    hub.export(settings)
