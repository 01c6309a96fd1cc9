"""What `import albert_tf` alone gives, in processes of their own."""

import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import albert_tf
from albert_tf.model import models, optimizers


def run(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_keras_loads_a_saved_model_after_the_import_of_its_classes(tmp_path, tiny):
    schedule = optimizers.WarmupPolynomialDecay(0.01, 10, 2)
    model = models.AlbertClassifier(tiny(), 5)
    model.compile(optimizers.Lamb(schedule, weight_decay=0.02))
    model.save(tmp_path / "model.keras")
    code = """
import sys
import albert_tf
assert albert_tf.tasks.__name__ == "albert_tf.tasks"
types = albert_tf.models.AlbertClassifier, albert_tf.optimizers.Lamb
import keras
model = keras.models.load_model(sys.argv[1])
assert (type(model), type(model.optimizer)) == types
print(float(abs(keras.ops.convert_to_numpy(model.head.output_dense.kernel)).sum()))
"""
    expected = np.abs(model.head.output_dense.kernel).sum()
    found = float(run(code, tmp_path / "model.keras"))
    assert found == pytest.approx(expected, abs=1e-6)


def test_modules_are_there_as_attributes():
    rooms = {module.name for module in pkgutil.iter_modules(albert_tf.__path__)}
    assert rooms - {"__main__"} <= {*albert_tf.__all__}
    for name in albert_tf.__all__:
        assert getattr(albert_tf, name).__name__.endswith(name)
    with pytest.raises(AttributeError, match="'albert_tf' has no attribute 'absent'"):
        albert_tf.absent  # noqa: B018


def test_the_package_alone_imports_no_tensorflow():
    code = """
import sys
import albert_tf
assert not {"keras", "numpy", "tensorflow"} & sys.modules.keys()
"""
    run(code)
