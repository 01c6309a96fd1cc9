r"""Converts ALBERT weights between code bases, and checks the result.

    python convert_checkpoint.py --input=albert_base_v2 --output=out \
        --output_format=hf

README.md lists the formats, docs/export.md what the exported ones are for.
"""

from albert_tf import flags
from albert_tf.serve.settings.conversion import ConversionSettings

flags.define(ConversionSettings)


def main() -> None:
    """Converts what the flags say."""
    settings = flags.read(ConversionSettings)

    # TensorFlow takes seconds, which --help and mistakes in the flags need not wait.
    from albert_tf.serve import convert

    convert.convert(settings)


if __name__ == "__main__":
    flags.run(main)
