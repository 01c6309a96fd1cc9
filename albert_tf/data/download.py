"""Downloads files and archives into folders; a folder exists only if it is complete.

make_folder(home() / "data/glue/CoLA", {url: sha256}, lambda folder: folder)
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from albert_tf import errors
from albert_tf.data import files
from albert_tf.errors import InputError

# The environment variable that names the folder of downloads.
HOME = "ALBERT_TF_HOME"


def home() -> Path:
    """Returns the folder of downloads: $ALBERT_TF_HOME, or ~/.cache/albert_tf."""
    return Path(os.environ.get(HOME) or "~/.cache/albert_tf").expanduser()


def make_folder(
    target: Path, urls: Mapping[str, str | None], arrange: Callable[[Path], Path]
) -> Path:
    """Downloads and unpacks files into a folder, if the folder does not exist.

    If several processes call this at the same time, one of them downloads, and the
    others wait. A file that is in the parent folder of `target` is used instead of the
    download of the same name.

    Args:
        target: the folder to make.
        urls: {address: SHA-256 checksum, hexadecimal, or None for no check} of plain
            files, or of one `.tar.gz` or `.zip`, which is unpacked.
        arrange: a function that takes the folder of the downloaded files, checks and
            changes the files, and returns the folder that becomes `target`: the same
            folder or a folder in it.

    Returns:
        `target`.

    Raises:
        InputError: there is no connection, a checksum differs, an archive is damaged,
            or the folder cannot be written. The message names the address and where to
            put a file that was downloaded by hand.
    """
    if target.is_dir():
        return target
    work = target.with_name(f"{target.name}.part")
    with files.lock_folder(target.parent, wait=True):
        if not target.is_dir():
            shutil.rmtree(work, ignore_errors=True)
            try:
                # `urls` has one archive, or plain files that all go to the same folder.
                # So the folder of the last file is the folder of all files.
                for url, sha256 in urls.items():
                    folder = _download(url, sha256, work, target.parent)
                folder = arrange(folder)
                with errors.wrap_write(target):
                    folder.rename(target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return target


def _download(url: str, sha256: str | None, work: Path, folder: Path) -> Path:
    """Downloads one file; unpacks it if it is an archive.

    Args:
        url: the address; the last part of its path is the file's name.
        sha256: the published checksum; None for no check.
        work: the folder for unfinished files.
        folder: a folder that may contain the file, put there by hand.

    Returns:
        `work` with the file, or the folder of the unpacked archive.
    """
    import keras

    name = url.rpartition("/")[2]
    is_archive = name.endswith((".tar.gz", ".zip"))
    local_file = folder / name
    with errors.wrap_write(work):
        work.mkdir(exist_ok=True)
    expected = f"a connection, or {name} put into {folder} by hand"
    # Keras prints its progress to the standard output, which is for results.
    with errors.wrap_read(url, expected), contextlib.redirect_stdout(sys.stderr):
        path = keras.utils.get_file(
            name,
            local_file.absolute().as_uri() if local_file.is_file() else url,
            file_hash=sha256,
            extract=is_archive,
            cache_dir=str(work),
            cache_subdir="",
        )
        # If a file with the name of an archive is no archive, `get_file` does not
        # unpack it, and returns a path that does not exist.
        if not os.path.exists(path):
            raise InputError(f"{url}: no archive; expected {expected}")
    return Path(path) if is_archive else work
