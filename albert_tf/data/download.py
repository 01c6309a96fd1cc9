"""Downloads files and archives into folders that are whole or not there.

    make_folder(home() / "data/glue/CoLA", [Remote(url, sha256)], lambda new: new)

A download that was cut off resumes where it ended, also in a later process: neither
`keras.utils.get_file` nor pooch does that.
"""

import contextlib
import gzip
import hashlib
import http.client
import logging
import os
import shutil
import stat
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from tqdm import tqdm

from albert_tf import errors
from albert_tf.data import files
from albert_tf.errors import InputError

HOME = "ALBERT_TF_HOME"
MIRROR = "ALBERT_TF_MIRROR"
_TIMEOUT = 30.0  # seconds without a byte
_TRIES = 5
_PAUSE = 1.0  # seconds after the first failure; twice as many after each further one
_CHUNK = 1 << 16
# Far above what is published: an archive must not fill the disk.
_MOST_UNPACKED = 20_000_000_000
_MOST_OF_A_HEADER = 1 << 20
# Name, whether it is a plain file or folder, bytes, and contents if it is a file.
_Member = tuple[str, bool, int, IO[bytes] | None]
_log = logging.getLogger(__name__)


class Remote(NamedTuple):
    """A file to download.

    Attributes:
        url: its address; the last part of its path is the file's name.
        sha256: its published checksum, hexadecimal; None where there is none.
    """

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rpartition("/")[2]


def home() -> Path:
    """Returns the folder of downloads: $ALBERT_TF_HOME, or ~/.cache/albert_tf."""
    return Path(os.environ.get(HOME) or "~/.cache/albert_tf").expanduser()


def make_folder(
    target: Path, remotes: Sequence[Remote], arrange: Callable[[Path], Path]
) -> Path:
    """Downloads and unpacks files into a folder, unless it is there already.

    Of several processes one downloads, and the others wait. What lies beside the folder
    under the name of a file to download is taken in its place.

    Args:
        target: the folder to make.
        remotes: what to download. `.tar.gz` and `.zip` are unpacked.
        arrange: checks and arranges the new folder before it gets its name; returns
            the folder that gets it, the new one or one inside.

    Returns:
        `target`.

    Raises:
        InputError: no connection, another checksum, a damaged or hostile archive, or
            the folder cannot be written. The message names the address and where to
            put the file.
    """
    if target.is_dir():
        return target
    work = target.with_name(f"{target.name}.part")
    with files.locked(work, wait=True):
        if not target.is_dir():
            _make(target, work, remotes, arrange)
    with contextlib.suppress(OSError):  # another process waits in it
        work.rmdir()
    return target


def _make(target: Path, work: Path, remotes, arrange) -> None:
    new = work / "new"
    shutil.rmtree(new, ignore_errors=True)
    paths = [_fetch(remote, work, target.parent) for remote in remotes]
    try:
        with errors.writing(new):
            new.mkdir()
        for remote, path in zip(remotes, paths, strict=True):
            _check_sum(remote, path)
            _unpack(path, new)
        whole = arrange(new)
        with errors.writing(target):
            whole.rename(target)
    except InputError as mistake:
        # Of the system's errors, such as a full disk, a damaged archive is none.
        if getattr(mistake.__cause__, "errno", None) is None:
            _empty(work)  # as what is damaged would be taken again
        urls = ", ".join(_mirrored(remote.url) for remote in remotes)
        raise InputError(f"{mistake} (from {urls})") from mistake.__cause__
    _empty(work)


def _empty(work: Path) -> None:
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != files.LOCK:
            path.unlink()


def _fetch(remote: Remote, work: Path, place: Path) -> Path:
    """Returns the path of a file, which is downloaded if need be."""
    for path in (place / remote.name, work / remote.name):
        if path.is_file():
            return path
    url, part = _mirrored(remote.url), work / f"{remote.name}.part"
    _log.warning("downloading %s to %s", url, place)
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_PAUSE * 2 ** (attempt - 1))
        try:
            _continue(url, part)
            return part.rename(path)
        except (OSError, http.client.HTTPException) as error:
            failure = error
        if isinstance(failure, urllib.error.HTTPError):
            failure.close()
            if failure.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink(missing_ok=True)
        if not _is_passing(failure):
            break
        _log.info("%s: %s", url, _reason(failure))
    raise InputError(
        f"{url}: cannot be downloaded: {_reason(failure)}; expected a "
        f"connection, or {remote.name} put into {place} by hand"
    ) from failure


def _continue(url: str, part: Path) -> None:
    """Downloads what is missing of a file, or all of it where the server has another.

    Raises:
        OSError, HTTPException: the server cannot be reached, refuses, or stops early.
        InputError: the file cannot be written.
    """
    # Names the version of the file that `part` is the beginning of.
    version = part.with_suffix(".version")
    request = urllib.request.Request(url)
    size = part.stat().st_size if part.exists() and version.exists() else 0
    if size and (validator := version.read_text()):
        request.add_header("Range", f"bytes={size}-")
        request.add_header("If-Range", validator)
    opener = urllib.request.build_opener(_Redirects)
    with opener.open(request, timeout=_TIMEOUT) as response:
        length = response.headers["Content-Length"] or ""
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            given = response.headers["Content-Range"] or ""
            length = given.rpartition("/")[2]
            if not given.startswith(f"bytes {size}-"):
                part.unlink(missing_ok=True)
                raise http.client.HTTPException(f"sent {given!r}, not from byte {size}")
        else:
            size = 0
        total = int(length) if length.isdecimal() else None
        with contextlib.ExitStack() as stack:
            with errors.writing(f"{url}: {part}"):
                file = stack.enter_context(open(part, "ab" if size else "wb"))
                if not size:
                    version.write_text(_validator(response.headers))
            bar = stack.enter_context(
                tqdm(
                    desc=part.stem,
                    total=total,
                    initial=size,
                    unit="B",
                    unit_scale=True,
                    disable=None,
                )
            )
            while data := response.read1(_CHUNK):
                with errors.writing(f"{url}: {part}"):
                    file.write(data)
                bar.update(len(data))
                size += len(data)
            with errors.writing(f"{url}: {part}"):
                file.flush()
    if total is not None and size != total:
        raise http.client.HTTPException(f"ended after {size:,} of {total:,} bytes")


def _validator(headers) -> str:
    """Returns what names this version of a file in If-Range; empty if nothing does."""
    etag = headers["ETag"] or ""
    validator = etag if etag.startswith('"') else headers["Last-Modified"] or ""
    return validator if validator.isprintable() else ""


def _mirrored(url: str) -> str:
    """Returns the address at $ALBERT_TF_MIRROR, which holds a folder for each host."""
    mirror = os.environ.get(MIRROR)
    if not mirror:
        return url
    if not mirror.startswith(("http://", "https://")):
        raise InputError(f"{MIRROR}={mirror}: expected an address with http or https")
    return f"{mirror.rstrip('/')}/{url.partition('://')[2]}"


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but none that leaves https."""

    def redirect_request(self, request, file, code, message, headers, url):
        if not url.startswith("https://" if request.type == "https" else "http"):
            file.close()
            raise urllib.error.URLError(f"redirected to {url}; expected https")
        return super().redirect_request(request, file, code, message, headers, url)


def _is_passing(error: Exception) -> bool:
    """Whether another try may go well."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code in (408, 416, 429) or error.code >= 500
    if isinstance(error, urllib.error.URLError):  # not connected at all
        return isinstance(error.reason, TimeoutError)
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}".splitlines()[0]
    inner = getattr(error, "reason", error)
    return errors.reason(inner) if isinstance(inner, Exception) else str(inner)


def _check_sum(remote: Remote, path: Path) -> None:
    if remote.sha256 is None:
        return
    with errors.reading(path), path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != remote.sha256:
        raise InputError(f"{path}: sha256 {actual}; expected {remote.sha256}")


def _unpack(path: Path, folder: Path) -> None:
    """Writes the files of an archive, or a file that is none, into a folder.

    Only plain files and folders are made, all below `folder`.

    Raises:
        InputError: a member of another type or with a name that leads elsewhere, too
            many bytes, or a damaged archive.
    """
    with contextlib.closing(_members(path)) as members:
        _write(path, members, folder)


def _write(path: Path, members: Iterable[_Member], folder: Path) -> None:
    total = 0
    for name, is_plain, size, source in members:
        total += max(size, 4096)  # also bounds the number of files
        pure = PurePosixPath(name)
        if not is_plain or pure.is_absolute() or ".." in pure.parts or "\\" in name:
            raise InputError(
                f"{path}: {errors.shown(name)}: expected plain files below one folder"
            )
        if total > _MOST_UNPACKED:
            raise InputError(
                f"{path}: {errors.shown(name)}: more than {_MOST_UNPACKED:,} bytes "
                f"unpacked; expected fewer"
            )
        target = folder / pure
        with errors.writing(target):
            (target if source is None else target.parent).mkdir(
                parents=True, exist_ok=True
            )
        if source is not None:
            _copy(path, source, target)


def _copy(path: Path, source: IO[bytes], target: Path) -> None:
    with contextlib.ExitStack() as stack:
        with errors.writing(target):
            file = stack.enter_context(target.open("xb"))
        while True:
            with errors.reading(path, "a whole file"):
                data = source.read(_CHUNK)
            if not data:
                break
            with errors.writing(target):
                file.write(data)


def _members(path: Path) -> Generator[_Member, None, None]:
    if path.name.endswith(".zip"):
        with errors.reading(path, "a whole .zip"), zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                is_plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
                with archive.open(info) as file:
                    contents = None if info.is_dir() else file
                    yield info.filename, is_plain, info.file_size, contents
    elif path.name.endswith(".tar.gz"):
        with (
            errors.reading(path, "a whole .tar.gz"),
            _Gzip(path) as stream,
            tarfile.open(fileobj=stream, mode="r:") as archive,
        ):
            for member in archive:
                contents = archive.extractfile(member) if member.isreg() else None
                is_plain = member.isreg() or member.isdir()
                yield member.name, is_plain, member.size, contents
            # The checksum of the whole stands behind the end of the archive.
            while data := stream.read(_CHUNK):
                yield ".", True, len(data), None
    else:
        with errors.reading(path), path.open("rb") as file:
            yield path.name, True, path.stat().st_size, file


class _Gzip(gzip.GzipFile):
    """Refuses headers of archives that would fill the memory."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > _MOST_OF_A_HEADER:
            raise tarfile.HeaderError(f"a header of {size:,} bytes")
        return super().read(size)
