"""`InputError`, the exception for a user's mistake, and functions for messages."""

import contextlib
import importlib.util
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

# TensorFlow adds locations in code to the message of an error. `_NODE_TRACE` matches
# the beginning of a trace of graph nodes after the message. `_LOCATION` matches other
# locations before or after the message.
_NODE_TRACE = re.compile(r"\n\t ?\[\[")
_LOCATION = re.compile(
    r"\{\{[^}]*\}\} |Error in user-defined function .*? with iterator: \S+: "
    r"| ?\[Op:.*|^ *\(\d\) [A-Z_]+: +"
)

# Characters that could move the cursor of a terminal or end the line of a message, and
# surrogates, which cannot be printed. A message may quote them from a file or a flag.
_UNPRINTABLE = re.compile("[\0-\x08\n-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_MAX_QUOTE_LENGTH = 40
# The exit status of a command that ends with an InputError.
EXIT_STATUS = 2
_log = logging.getLogger(__name__)
# The type of `wrap_read(...)` and `wrap_write(...)`.
_Context = contextlib.AbstractContextManager[None]


class InputError(ValueError):
    """A file, flag or argument that cannot be used.

    The message is one line: a location or the name of a flag, then the received value
    and the expected value. If weights do not fit the model, the message has one more
    line for each kind of mistake. `flags.run_main` prints the message without a
    traceback.
    """

    # Without this attribute, Keras adds many lines to an error in a layer's call.
    _keras_call_info_injected = True

    # True in a subclass whose messages have several lines.
    _is_multiline = False

    def __str__(self) -> str:
        """Returns the message with control characters escaped."""
        text = super().__str__()
        lines = text.split("\n") if self._is_multiline else [text]
        return "\n".join(_UNPRINTABLE.sub(_escape, line) for line in lines)


def _escape(character: re.Match[str]) -> str:
    """Returns a matched character as Python's escape sequence."""
    return character[0].encode("unicode_escape").decode()


def wrap_read(path: Any, expected: str = "a readable file") -> _Context:
    """Raises InputError instead of any exception of a `with` block that reads a file.

    The block must only read, because the message blames the file for each exception.
    All exceptions are caught, because TensorFlow, safetensors, h5py, zipfile, protobuf,
    json and the file system raise about twenty types without a common base class.

    Args:
        path: the path of the file, or another location of the input, for the message.
        expected: the kind of file or input that is expected, for the message.

    Raises:
        InputError: the block raised an exception.
    """
    return _wrap(f"{path}: ", f"; expected {expected}")


def wrap_write(path: Any) -> _Context:
    """Raises InputError instead of any exception of a `with` block that writes a file.

    The block must only write, because the message blames the file for each exception.
    All exceptions are caught, because a full disk raises OSError in Python, OpError in
    TensorFlow and SafetensorError in safetensors.

    Args:
        path: the path of the file or folder, for the message.

    Raises:
        InputError: the block raised an exception.
    """
    return _wrap(f"{path}: cannot be written: ", "")


@contextlib.contextmanager
def _wrap(before: str, after: str) -> Iterator[None]:
    """Raises InputError instead of any exception; an InputError keeps its message.

    Args:
        before: the text before the summary of the exception in the message.
        after: the text after the summary.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{before}{summarize(error)}{after}") from error


def check_installed(feature: str, package: str, extra: str) -> None:
    """Checks that an optional package is installed.

    Args:
        feature: the flag or feature that needs the package, for the message.
        package: the name of the package.
        extra: the extra of `albert_tf` that installs the package.

    Raises:
        InputError: the package is not installed.
    """
    if importlib.util.find_spec(package) is None:
        raise InputError(
            f"{feature} needs the package {package}: pip install 'albert_tf[{extra}]'"
        )


@contextlib.contextmanager
def log_failure(item: str, log: Callable[[str], None] = _log.warning) -> Iterator[None]:
    """Logs any exception of a `with` block as a warning, and continues after the block.

    Use it for output that is not essential.

    Args:
        item: the name of the output that the block makes, for the message "no {item}".
        log: the function that writes the line.
    """
    try:
        yield
    except Exception as error:
        log(f"Warning: no {item}: {summarize(error)}")


def summarize(error: BaseException) -> str:
    """Returns the message of an exception in one line, without locations in code."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error).strip()
    # In TensorFlow's errors, the message is the last line before the trace of nodes.
    message, *traces = _NODE_TRACE.split(text)
    text = _LOCATION.sub("", message.splitlines()[-1] if traces else text)
    return text.splitlines()[0] if text else type(error).__name__


def quote(value: Any) -> str:
    """Returns a value as JSON for a message; cuts it after 40 characters with "..."."""
    try:
        text = json.dumps(value, default=repr)
    except (TypeError, ValueError, RecursionError):  # JSON has no such key or value
        text = type(value).__name__
    is_short = len(text) <= _MAX_QUOTE_LENGTH
    return text if is_short else f"{text[:_MAX_QUOTE_LENGTH]}..."
