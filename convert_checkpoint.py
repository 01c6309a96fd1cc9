"""Converts ALBERT weights between code bases, and checks the result.

python convert_checkpoint.py --input=albert_base --output=out --output_format=hf
"""

from albert_tf import flags
from albert_tf.conversion import ConversionSettings, convert


def main():
    """Converts what the flags say."""
    convert(flags.read(ConversionSettings))


if __name__ == "__main__":
    flags.define(ConversionSettings)
    flags.run(main)
