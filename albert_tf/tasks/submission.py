"""Predictions as files: the released ones, and those that GLUE's site takes."""

import re
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from albert_tf import errors
from albert_tf.data.files import atomic
from albert_tf.errors import InputError
from albert_tf.tasks import catalogue
from albert_tf.tasks.settings.classification import ClassifierRunSettings
from albert_tf.tasks.text_task import Example, TextTask

_HEADER = "index\tprediction\n"
_SEPARATORS = re.compile("[\t\r\n]")
# Of an entry of the zip: the earliest that the format can hold, so that equal
# predictions give equal bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def released_files(
    task: TextTask, examples: Sequence[Example], outputs: np.ndarray
) -> dict[str, str]:
    """Returns the files that the released code writes for a test table, by name.

    `test_results.tsv` holds the outputs, between tabs; `submit_results.tsv` a header
    and for each example its guid and label. **As released**, but for regressions: the
    release does not hold those of `submit_results.tsv` within their bounds.

    Args:
        task: the task.
        examples: n examples.
        outputs: float [n, K] probabilities; float [n, 1] of a regression.
    """
    _check_count(examples, outputs)
    # Not of `tolist`, whose float64 would show more digits than a float32 has.
    lines = ("\t".join(map(str, row)) + "\n" for row in np.asarray(outputs))
    words = task.words(task.predict(outputs))
    return {
        "test_results.tsv": "".join(lines),
        "submit_results.tsv": _two_columns(examples, words),
    }


def glue_file(
    task: TextTask, split: str, examples: Sequence[Example], outputs: np.ndarray
) -> tuple[str, str]:
    """Returns the name and the contents of the file that GLUE's site takes.

    Args:
        task: a task of GLUE.
        split: "test", or another that the site scores.
        examples: n examples.
        outputs: as for `released_files`; scores are written with three decimals.

    Raises:
        InputError: the site does not score that split.
    """
    if split not in task.submission:
        scored = ", ".join(task.submission) or "none"
        raise InputError(
            f"task {task.name}: the benchmark's site does not score the {split} table; "
            f"expected one of: {scored}"
        )
    _check_count(examples, outputs)
    predictions = task.predict(outputs)
    if task.labels is None:
        words = [f"{number:.3f}" for number in predictions.tolist()]
    else:
        words = task.words(predictions)
    return task.submission[split], _two_columns(examples, words)


def submit(run: ClassifierRunSettings, log: IO[str] = sys.stderr) -> None:
    """Gathers the predictions of all tasks into one zip, if it is asked for.

    Raises:
        InputError: see `gather` and `write_zip`.
    """
    if not run.glue_submission:
        return
    path, folders = run.glue_submission, run.submission_dirs or (run.output_dir,)
    tasks = catalogue.TASKS.values()
    expected = sorted({file for task in tasks for file in task.submission.values()})
    files = gather(folders, expected)
    write_zip(path, {name: file.read_text("utf-8") for name, file in files.items()})
    print(f"Written: {path}, of {len(files)} files: {', '.join(files)}", file=log)
    missing = [name for name in expected if name not in files]
    if missing:
        print(
            f"Warning: {path} lacks {', '.join(missing)}; the site takes a zip with "
            f"the files of all tasks",
            file=log,
        )


def gather(folders: Iterable[str | Path], names: Iterable[str]) -> dict[str, Path]:
    """Finds files in some folders, and in the folders right below them.

    Args:
        folders: where to look.
        names: the files to find.

    Returns:
        Those that are there, by name.

    Raises:
        InputError: a file is there twice, or none is there.
    """
    files: dict[str, Path] = {}
    folders, names = list(folders), list(names)
    for name in names:
        places = {
            path.resolve(): path
            for folder in folders
            for path in (Path(folder, name), *sorted(Path(folder).glob(f"*/{name}")))
            if path.is_file()
        }
        if len(places) > 1:
            raise InputError(
                f"{name}: expected once, found in "
                f"{' and '.join(str(path.parent) for path in places.values())}"
            )
        if places:
            [files[name]] = places.values()
    if not files:
        raise InputError(
            f"{', '.join(map(str, folders))}: no predictions to submit; expected files "
            f"such as {names[0]}, which --do_predict writes"
        )
    return files


def write_zip(path: str | Path, files: Mapping[str, str]) -> None:
    """Writes files to a zip without folders, as GLUE's site takes it.

    Equal files give equal bytes; the zip is never half written.

    Args:
        path: the zip.
        files: contents by name.

    Raises:
        InputError: the zip cannot be written.
    """
    with errors.writing(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic(str(path)) as file, zipfile.ZipFile(file, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = 0o644 << 16  # readable where it is unpacked
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED)


def _two_columns(examples: Sequence[Example], words: Sequence[str]) -> str:
    # A cell of a CSV table may hold what ends a cell or a line here.
    lines = (
        f"{_SEPARATORS.sub(' ', example.guid)}\t{_SEPARATORS.sub(' ', word)}\n"
        for example, word in zip(examples, words, strict=True)
    )
    return _HEADER + "".join(lines)


def _check_count(examples: Sequence[Example], outputs: np.ndarray) -> None:
    if len(examples) != len(outputs):
        raise ValueError(f"{len(examples)} examples and {len(outputs)} outputs")
