"""Keeps the lines of other libraries from standard error, where a script asks for it.

`flags.run` sets TF_CPP_MIN_LOG_LEVEL to 3, unless --verbosity or the environment asks
for more. TensorFlow's older C++ code reads it; what does not is silenced here.
"""

import contextlib
import ctypes
import logging
import os
from collections.abc import Iterator

# `absl::SetMinLogLevel` as TensorFlow 2.20 exports it, and its argument.
_SET_LEVEL = "_ZN4absl12lts_2025012714SetMinLogLevelENS0_18LogSeverityAtLeastE"
_FATAL = 3


def is_wanted() -> bool:
    """Whether libraries are to log nothing."""
    return os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "3"


def tensorflow() -> None:
    """Silences TensorFlow's Python code, and its C++ code that logs with absl.

    The latter logs devices, what XLA compiles and what converters ignore.
    """
    import tensorflow as tf

    # At the level of information, every collective operation is logged.
    tf.get_logger().setLevel(logging.ERROR if is_wanted() else logging.WARNING)
    if is_wanted():
        path = os.path.join(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2")
        # Elsewhere than on Linux, and in other releases, these lines stay.
        with contextlib.suppress(OSError, AttributeError):
            getattr(ctypes.CDLL(path), _SET_LEVEL)(_FATAL)


@contextlib.contextmanager
def standard_error() -> Iterator[None]:
    """Drops what native code prints while a block runs, for code with no setting."""
    if not is_wanted():
        yield
        return
    before = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
