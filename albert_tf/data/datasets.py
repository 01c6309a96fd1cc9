"""Downloads the data sets that the scripts read: GLUE, SQuAD and RACE.

    fetch("mrpc")  # returns the --data_dir of run_classifier.py --task_name=mrpc

`datasets.json` has the addresses, checksums and licences. The checksums come from
TensorFlow Datasets, which uses the same addresses. Neither the checksums nor the
addresses were checked against the live servers.
"""

import functools
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from albert_tf import errors
from albert_tf.data import download
from albert_tf.errors import InputError

_log = logging.getLogger(__name__)


class Dataset(NamedTuple):
    """A data set and its source.

    Attributes:
        folder: the path of its folder, relative to `download.home() / "data"`.
        licence: its licence, or the address of a page that names the licence.
        files: {url: SHA-256 checksum} of plain files or of one archive.
        archive_folder: the folder of the data set in its archive; "" for plain files.
        requires: the name of another data set that the same task also reads.
    """

    folder: str
    licence: str
    files: Mapping[str, str]
    archive_folder: str = ""
    requires: str | None = None


@functools.cache
def read_datasets() -> dict[str, Dataset]:
    """Reads `datasets.json`: {name of the data set: its source}."""
    entries = json.loads(Path(__file__).with_suffix(".json").read_text())
    return {name: Dataset(**entry) for name, entry in entries.items()}


def fetch(name: str) -> Path:
    """Downloads a data set if its folder does not exist.

    Args:
        name: the `--task_name` of a GLUE task, "squad_v1", "squad_v2" or "race".

    Returns:
        The folder for `--data_dir`. For GLUE, it contains the folders of all tasks that
        were downloaded. For SQuAD, it contains the JSON files; for RACE, the folders of
        the splits.

    Raises:
        InputError: the name is unknown, or the data set cannot be downloaded, see
            `download.make_folder`.
    """
    name, datasets = name.lower(), read_datasets()
    if name not in datasets:
        raise InputError(f"data set {name!r}: expected one of {', '.join(datasets)}")
    dataset, data_folder = datasets[name], download.home() / "data"
    if dataset.requires:
        fetch(dataset.requires)
    folder = data_folder / dataset.folder
    if not folder.is_dir():
        _log.warning("%s: licence: %s", name, dataset.licence)
    arrange = _ARRANGE.get(name, lambda new_folder: new_folder / dataset.archive_folder)
    download.make_folder(folder, dataset.files, arrange)
    return data_folder / Path(dataset.folder).parts[0]


def _split_mrpc(new_folder: Path) -> Path:
    """Makes GLUE's tables of MRPC from the original files of MRPC.

    GLUE's archives do not contain MRPC.

    Args:
        new_folder: the folder of the downloaded files.

    Returns:
        A folder in `new_folder`, with train.tsv, dev.tsv and test.tsv.
    """
    names = "mrpc_dev_ids.tsv", "msr_paraphrase_train.txt", "msr_paraphrase_test.txt"
    files = ((new_folder / name).read_bytes() for name in names)
    dev_ids, train, test = (file.splitlines() for file in files)
    dev_pairs = {tuple(line.split(b"\t")) for line in dev_ids}
    # The first line of `train` is the header. Columns 1 and 2 are the ids of the two
    # sentences; `dev_ids` has the pairs of ids of the dev split.
    tables = {"train.tsv": train[:1], "dev.tsv": train[:1]}
    for line in train[1:]:
        is_dev = tuple(line.split(b"\t")[1:3]) in dev_pairs
        tables["dev.tsv" if is_dev else "train.tsv"].append(line)
    tables["test.tsv"] = [b"index\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    # In the test table, GLUE replaces the first column, the label, by an index.
    for index, line in enumerate(test[1:]):
        tables["test.tsv"].append(b"%d\t%s" % (index, line.partition(b"\t")[2]))
    folder = new_folder / "MRPC"
    with errors.wrap_write(folder):
        folder.mkdir()
        for table, lines in tables.items():
            (folder / table).write_bytes(b"\n".join([*lines, b""]))
    return folder


def _rename_diagnostic(new_folder: Path) -> Path:
    """Renames the table of the task "ax" to the name that the task reads."""
    with errors.wrap_write(new_folder):
        (new_folder / "AX.tsv").rename(new_folder / "diagnostic.tsv")
    return new_folder


# For data sets whose files must change: the argument `arrange` of
# `download.make_folder`.
_ARRANGE = {"mrpc": _split_mrpc, "ax": _rename_diagnostic}
