"""The one exception for a user's mistake, and what turns others' exceptions into it."""

import contextlib
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

# TensorFlow writes where an error came up before and behind what it was.
_OF_A_NODE = re.compile(r"\n\t ?\[\[")
_WHERE = re.compile(
    r"\{\{[^}]*\}\} |Error in user-defined function .*? with iterator: \S+: "
    r"| ?\[Op:.*|^ *\(\d\) [A-Z_]+: +"
)

# What a file or a flag holds must not move a terminal's cursor, nor end the line.
_UNPRINTABLE = re.compile("[\0-\x08\n-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

_QUOTED = 40
# The exit status of a command that ends with an InputError.
MISTAKE = 2
_log = logging.getLogger(__name__)


class InputError(ValueError):
    """Something that the caller gave cannot be used.

    The message is one line that names the file, line, key or flag, the value received
    and what was expected; where weights do not fit, one line for each kind of mistake
    follows. Scripts print it without a traceback (see `flags.run`).
    """

    # Keras rewrites what is raised in a layer's call to many lines, unless this is set.
    _keras_call_info_injected = True

    _has_lines = False

    def __str__(self) -> str:
        """Returns the message, in which what cannot be printed is escaped."""
        text = super().__str__()
        lines = text.split("\n") if self._has_lines else [text]
        return "\n".join(_UNPRINTABLE.sub(_escaped, line) for line in lines)


def _escaped(character: re.Match[str]) -> str:
    return character[0].encode("unicode_escape").decode()


@contextlib.contextmanager
def wrap_read(path: Any, expected: str = "a readable file") -> Iterator[None]:
    """Turns whatever a library raises on a damaged or hostile file into InputError.

    TensorFlow, safetensors, h5py, zipfile, protobuf, json and the file system raise
    some twenty kinds of exceptions on files that are cut short or changed, with no base
    class in common. Keep the block down to the calls that read.

    Args:
        path: the file, for the message.
        expected: what it should have been.

    Raises:
        InputError: anything but InputError was raised in the block.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path}: {summarize(error)}; expected {expected}") from error


@contextlib.contextmanager
def wrap_write(path: Any) -> Iterator[None]:
    """Turns what the file system or a library raises on writing into InputError.

    A full disk is an OSError to Python, an OpError to TensorFlow and a
    SafetensorError to safetensors. Keep the block down to the calls that write.

    Args:
        path: the file or folder, for the message.

    Raises:
        InputError: anything but InputError was raised in the block.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path}: cannot be written: {summarize(error)}") from error


@contextlib.contextmanager
def log_failure(what: str, log: Callable[[str], None] = _log.warning) -> Iterator[None]:
    """Logs a warning where what only decorates a run fails, which goes on.

    Args:
        what: that is missing then.
        log: gets the line.
    """
    try:
        yield
    # Whatever a library raises, a picture is not worth a run.
    except Exception as error:
        log(f"Warning: no {what}: {summarize(error)}")


def summarize(error: BaseException) -> str:
    """Returns in one line why something failed, without the library's own frames."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error).strip()
    before, *after = _OF_A_NODE.split(text)
    text = _WHERE.sub("", before.splitlines()[-1] if after else text)
    return text.splitlines()[0] if text else type(error).__name__


def quote(value: Any) -> str:
    """Returns the beginning of a value as JSON, for messages."""
    try:
        text = json.dumps(value, default=repr)
    except (TypeError, ValueError, RecursionError):  # keys of other types, cycles
        text = type(value).__name__
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."
