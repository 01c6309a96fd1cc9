"""Downloads the data sets that the scripts read: GLUE, SQuAD and RACE.

    fetch("mrpc")  # returns what run_classifier.py --task_name=mrpc takes as --data_dir

Checksums are those that TensorFlow Datasets has for the same addresses. Neither these
nor the addresses were checked against the live servers.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from albert_tf import errors
from albert_tf.data import download
from albert_tf.data.download import Remote
from albert_tf.errors import InputError

_GLUE = "https://dl.fbaipublicfiles.com/glue/data"
_SENTEVAL = "https://dl.fbaipublicfiles.com/senteval/senteval_data"
_SQUAD = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
_log = logging.getLogger(__name__)


class Dataset(NamedTuple):
    """A data set and its source.

    Attributes:
        folder: its folder in `data` of `download.home()`; `fetch` returns its first
            part.
        licence: its licence, or a page to look for it.
        remotes: the files to download.
        arrange: arranges the unpacked files, see `download.make_folder`.
        needs: another data set that its task also reads.
    """

    folder: str
    licence: str
    remotes: tuple[Remote, ...]
    arrange: Callable[[Path], Path] = lambda new: new
    needs: str | None = None


def fetch(name: str) -> Path:
    """Downloads a data set, unless it is there already.

    Args:
        name: a key of `DATASETS`: the `--task_name` of a GLUE task, "squad_v1",
            "squad_v2" or "race".

    Returns:
        The folder for `--data_dir`; for SQuAD, the folder of its JSON files.

    Raises:
        InputError: an unknown name, or see `download.make_folder`.
    """
    name = name.lower()
    if name not in DATASETS:
        raise InputError(f"data set {name!r}: expected one of {', '.join(DATASETS)}")
    dataset, data = DATASETS[name], download.home() / "data"
    if dataset.needs:
        fetch(dataset.needs)
    folder = data / dataset.folder
    if not folder.is_dir():
        _log.warning("%s: licence: %s", name, dataset.licence)
    download.make_folder(folder, dataset.remotes, dataset.arrange)
    return data / Path(dataset.folder).parts[0]


def _glue(folder: str, archive: str, sha256: str, licence: str) -> Dataset:
    remotes = (Remote(f"{_GLUE}/{archive}", sha256),)
    return Dataset(f"glue/{folder}", licence, remotes, lambda new: new / folder)


def _split_mrpc(new: Path) -> Path:
    """Splits the original files as GLUE does; GLUE's archives do not have them."""
    dev_ids, train, test = (
        (new / remote.name).read_bytes().splitlines()
        for remote in DATASETS["mrpc"].remotes
    )
    pairs = {tuple(line.split(b"\t")) for line in dev_ids}
    tables = {"train.tsv": train[:1], "dev.tsv": train[:1]}
    for line in train[1:]:
        is_dev = tuple(line.split(b"\t")[1:3]) in pairs
        tables["dev.tsv" if is_dev else "train.tsv"].append(line)
    tables["test.tsv"] = [b"index\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    for number, line in enumerate(test[1:]):
        tables["test.tsv"].append(b"%d\t%s" % (number, line.partition(b"\t")[2]))
    folder = new / "MRPC"
    with errors.wrap_write(folder):
        folder.mkdir()
        for table, lines in tables.items():
            (folder / table).write_bytes(b"\n".join([*lines, b""]))
    return folder


def _rename_diagnostic(new: Path) -> Path:
    with errors.wrap_write(new):
        (new / "AX.tsv").rename(new / "diagnostic.tsv")
    return new


# fmt: off
_MNLI = _glue(
    "MNLI", "MNLI.zip",
    "e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633",
    "licence of the Open American National Corpus; fiction: CC BY 3.0, CC BY-SA 3.0 "
    "and others, see https://cims.nyu.edu/~sbowman/multinli",
)
DATASETS = {
    "cola": _glue(
        "CoLA", "CoLA.zip",
        "f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff",
        "see https://nyu-mll.github.io/CoLA/",
    ),
    "sst-2": _glue(
        "SST-2", "SST-2.zip",
        "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
        "see https://nlp.stanford.edu/sentiment/",
    ),
    "mrpc": Dataset(
        "glue/MRPC",
        "Microsoft Research Shared Source License Agreement, see "
        "https://www.microsoft.com/en-us/download/details.aspx?id=52398",
        (
            Remote(
                f"{_GLUE}/mrpc_dev_ids.tsv",
                "971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7",
            ),
            Remote(
                f"{_SENTEVAL}/msr_paraphrase_train.txt",
                "60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89",
            ),
            Remote(
                f"{_SENTEVAL}/msr_paraphrase_test.txt",
                "a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784",
            ),
        ),
        _split_mrpc,
    ),
    "qqp": _glue(
        "QQP", "QQP-clean.zip",
        "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0",
        "Quora's terms of service, see "
        "https://data.quora.com/First-Quora-Dataset-Release-Question-Pairs",
    ),
    "sts-b": _glue(
        "STS-B", "STS-B.zip",
        "e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85",
        "licences of its sources, see http://ixa2.si.ehu.eus/stswiki",
    ),
    "mnli": _MNLI,
    "mismnli": _MNLI,
    "ax": Dataset(
        "glue/diagnostic",
        "see https://gluebenchmark.com/diagnostics",
        (
            Remote(
                f"{_GLUE}/AX.tsv",
                "0e13510b1bb14436ff7e2ee82338f0efb0133ecf2e73507a697dc210db3f05fd",
            ),
        ),
        _rename_diagnostic,
        needs="mnli",
    ),
    "qnli": _glue(
        "QNLI", "QNLIv2.zip",
        "e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5",
        "CC BY-SA 4.0, as SQuAD, see https://rajpurkar.github.io/SQuAD-explorer/",
    ),
    "rte": _glue(
        "RTE", "RTE.zip",
        "6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee",
        "see https://aclweb.org/aclwiki/Recognizing_Textual_Entailment",
    ),
    "wnli": _glue(
        "WNLI", "WNLI.zip",
        "ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46",
        "CC BY 4.0, as the Winograd Schema Challenge, see "
        "https://cs.nyu.edu/faculty/davise/papers/WinogradSchemas/WS.html",
    ),
    **{
        name: Dataset(
            name,
            "CC BY-SA 4.0, see https://rajpurkar.github.io/SQuAD-explorer/",
            tuple(Remote(f"{_SQUAD}/{file}", sha256) for file, sha256 in files),
        )
        for name, files in {
            "squad_v1": [
                ("train-v1.1.json",
                 "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955"),
                ("dev-v1.1.json",
                 "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9"),
            ],
            "squad_v2": [
                ("train-v2.0.json",
                 "68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002"),
                ("dev-v2.0.json",
                 "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8"),
            ],
        }.items()
    },
    "race": Dataset(
        "RACE",
        "for non-commercial research only, see "
        "https://www.cs.cmu.edu/~glai1/data/race/",
        (
            Remote(
                "https://www.cs.cmu.edu/~glai1/data/race/RACE.tar.gz",
                "b2769cc9fdc5c546a693300eb9a966cec6870bd349fbc44ed5225f8ad33006e5",
            ),
        ),
        lambda new: new / "RACE",
    ),
}
# fmt: on
