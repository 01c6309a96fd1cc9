"""What TensorFlow's import leaves out in a command, and nobody else's."""

import subprocess
import sys

SCRIPT = """
import sys
from albert_tf.data import imports
imports.leave_out()
import tensorflow, keras, orbit
keras.Model, tensorflow.lite
print(sorted({"cv2", "jax", "matplotlib", "pandas", "sklearn"} & set(sys.modules)))
import cv2, matplotlib.pyplot, pandas, sklearn.metrics
"""


def test_packages_that_no_command_uses_are_not_imported_with_tensorflow():
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
