"""What `import albert_tf` alone gives, in processes of their own."""

import os
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import albert_tf
from albert_tf.model import models, optimizers


def run(code, *arguments, backend="numpy"):  # the one that is there soonest
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(
        command,
        env=os.environ | {"KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_keras_loads_a_saved_model_after_the_import_of_its_classes(tmp_path, tiny):
    schedule = optimizers.WarmupPolynomialDecay(0.01, 10, 2)
    model = models.AlbertClassifier(tiny(), 5)
    model.compile(optimizers.Lamb(schedule, weight_decay=0.02))
    model.save(tmp_path / "model.keras")
    code = """
import sys
import keras
from albert_tf import models, optimizers
model = keras.models.load_model(sys.argv[1])
assert type(model) is models.AlbertClassifier
assert type(model.optimizer) is optimizers.Lamb
print(float(abs(keras.ops.convert_to_numpy(model.head.output_dense.kernel)).sum()))
"""
    expected = np.abs(model.head.output_dense.kernel).sum()
    found = float(run(code, tmp_path / "model.keras"))
    assert found == pytest.approx(expected, abs=1e-6)


def test_modules_are_there_as_attributes():
    code = """
import albert_tf
print(albert_tf.optimizers.Lamb.__name__, albert_tf.tasks.__name__)
"""
    assert run(code) == "Lamb albert_tf.tasks\n"
    rooms = [module.name for module in pkgutil.iter_modules(albert_tf.__path__)]
    for name in {*rooms, *albert_tf.__all__} - {"__main__"}:
        assert getattr(albert_tf, name).__name__.endswith(name)
    with pytest.raises(AttributeError, match="'albert_tf' has no attribute 'absent'"):
        albert_tf.absent  # noqa: B018


def test_the_package_alone_imports_no_tensorflow_and_comes_at_once():
    code = """
import sys, time
begin = time.process_time()
import albert_tf
print(time.process_time() - begin)
assert not {"keras", "numpy", "tensorflow"} & sys.modules.keys()
"""
    assert min(float(run(code)) for _ in range(3)) < 0.1
