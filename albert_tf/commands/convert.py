r"""Converts ALBERT weights between formats, and checks the result.

    python convert_checkpoint.py --input=albert_base_v2 --output=out \
        --output_format=hf

docs/export.md explains the formats.
"""

from albert_tf.serve.settings import ConversionSettings

SETTINGS = (ConversionSettings,)


def main(settings: ConversionSettings) -> None:
    """Converts the weights."""
    from albert_tf.serve import convert

    convert.convert(settings)
