import os

import pytest

from albert_tf.data import quiet

# What logs in C++ whatever TF_CPP_MIN_LOG_LEVEL is: XLA, the converter and LiteRT; and
# what logs in Python: a MirroredStrategy that is called eagerly.
LOUD = """
import os, sys
from pathlib import Path
files = {files!r}
for number, name in enumerate(files[:2], 1):
    os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
from albert_tf.data import quiet
import tensorflow as tf
from albert_tf.serve import sessions
quiet.tensorflow()
specs = [tf.TensorSpec([None], tf.int32, name="x")]
call = tf.function(lambda x: {{"y": x + 1}}, input_signature=specs, autograph=False)
tf.function(call, jit_compile=True)(tf.zeros([1], tf.int32))
function = call.get_concrete_function()
converter = tf.lite.TFLiteConverter.from_concrete_functions([function], tf.Module())
path = Path(files[2])
path.write_bytes(converter.convert())
run = sessions.load(path, 1)
print(run({{"x": tf.ones([3]).numpy()}})["y"].tolist(), flush=True)
tf.distribute.MirroredStrategy(["CPU:0"]).run(lambda: tf.get_logger().warning("loud"))
"""


def test_tensorflow_and_litert_log_nothing(processes, tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    code = LOUD.format(files=[str(out), str(err), str(tmp_path / "model.tflite")])
    process = processes.Process(target=exec, args=(code, {}))
    process.start()
    process.join()
    assert process.exitcode == 0, err.read_text()
    assert (out.read_text(), err.read_text()) == ("[2, 2, 2]\n", "")


def test_standard_error_comes_back_after_a_mistake(capfd, monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with pytest.raises(ValueError, match="one"), quiet.standard_error():
        os.write(2, b"lost")
        raise ValueError("one")
    os.write(2, b"kept")
    assert capfd.readouterr().err == "kept"
