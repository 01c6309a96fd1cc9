import re
import zipfile

import numpy as np
import pytest

from albert_tf.errors import InputError
from albert_tf.tasks import glue
from albert_tf.tasks.submission import (
    gather,
    glue_file,
    released_files,
    write_zip,
)
from albert_tf.tasks.text_task import Example

EXAMPLES = [Example(guid, "a", None, None) for guid in ("0", "1", "x7")]
PROBABILITIES = np.array([[0.1, 0.9], [0.75, 0.25], [0.5, 0.5]], "float32")
NUMBERS = np.array([[-0.2], [3.14159], [5.75]], "float32")


def test_the_released_files_hold_probabilities_and_labels():
    assert released_files(glue.RTE, EXAMPLES, PROBABILITIES) == {
        "test_results.tsv": "0.1\t0.9\n0.75\t0.25\n0.5\t0.5\n",
        "submit_results.tsv": (
            "index\tprediction\n0\tnot_entailment\n1\tentailment\nx7\tentailment\n"
        ),
    }


def test_what_ends_a_cell_or_a_line_is_a_space_in_an_index():
    examples = [Example(guid, "a", None, None) for guid in ("a\tb", "c\nd", "e\r")]
    assert released_files(glue.STSB, examples, NUMBERS)["submit_results.tsv"] == (
        "index\tprediction\na b\t0.0\nc d\t3.14159\ne \t5.0\n"
    )


def test_a_regression_is_within_its_bounds_where_it_is_submitted():
    found = released_files(glue.STSB, EXAMPLES, NUMBERS)
    assert found == {
        "test_results.tsv": "-0.2\n3.14159\n5.75\n",
        "submit_results.tsv": "index\tprediction\n0\t0.0\n1\t3.14159\nx7\t5.0\n",
    }


def test_the_sites_files_have_its_names_words_and_decimals():
    name, text = glue_file(glue.STSB, "test", EXAMPLES, NUMBERS)
    assert (name, text) == (
        "STS-B.tsv",
        "index\tprediction\n0\t0.000\n1\t3.142\nx7\t5.000\n",
    )
    name, text = glue_file(glue.COLA, "test", EXAMPLES, PROBABILITIES)
    assert (name, text) == ("CoLA.tsv", "index\tprediction\n0\t1\n1\t0\nx7\t0\n")
    name, text = glue_file(glue.AX, "test", EXAMPLES[:1], np.array([[0.2, 0.1, 0.7]]))
    assert (name, text) == ("AX.tsv", "index\tprediction\n0\tneutral\n")


def test_the_site_takes_eleven_files():
    tasks = (
        *(glue.COLA, glue.SST2, glue.MRPC, glue.STSB, glue.QQP, glue.MNLI),
        *(glue.QNLI, glue.RTE, glue.WNLI, glue.AX),
    )
    names = [name for task in tasks for name in task.submission.values()]
    assert sorted(names) == [
        *("AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv", "QNLI.tsv"),
        *("QQP.tsv", "RTE.tsv", "SST-2.tsv", "STS-B.tsv", "WNLI.tsv"),
    ]
    assert glue.MISMATCHED_MNLI.submission == {"test": "MNLI-mm.tsv"}


def test_a_split_that_the_site_does_not_score_is_refused():
    message = (
        "task mnli: the benchmark's site does not score the dev table; expected one "
        "of: test, test_mismatched"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        glue_file(glue.MNLI, "dev", EXAMPLES, NUMBERS)


@pytest.mark.parametrize("outputs", [PROBABILITIES[:2], PROBABILITIES[:0]])
def test_predictions_that_are_too_few_are_refused(outputs):
    with pytest.raises(ValueError, match="3 examples and"):
        released_files(glue.RTE, EXAMPLES, outputs)
    with pytest.raises(ValueError, match="3 examples and"):
        glue_file(glue.RTE, "test", EXAMPLES, outputs)


def test_a_zip_has_no_folders_and_the_same_bytes_each_time(tmp_path):
    files = {"CoLA.tsv": "index\tprediction\n0\t1\n", "AX.tsv": "x\n"}
    path = tmp_path / "submission.zip"
    path.write_text("old")
    write_zip(path, files)
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["AX.tsv", "CoLA.tsv"]
        assert archive.read("CoLA.tsv") == b"index\tprediction\n0\t1\n"
        assert archive.getinfo("AX.tsv").date_time == (1980, 1, 1, 0, 0, 0)
    before = path.read_bytes()
    write_zip(path, dict(reversed(files.items())))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["submission.zip"]


def test_what_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "a"
    message = f"{path}: cannot be written: "
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        write_zip(path, {})


def test_files_are_gathered_from_folders_and_those_right_below(tmp_path):
    for place in ("a/CoLA.tsv", "a/runs/RTE.tsv", "b/AX.tsv", "b/c/d/WNLI.tsv"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(place)
    names = ["AX.tsv", "CoLA.tsv", "RTE.tsv", "WNLI.tsv"]
    found = gather([tmp_path / "a", tmp_path / "b", tmp_path], names)
    assert {name: path.read_text() for name, path in found.items()} == {
        "AX.tsv": "b/AX.tsv",
        "CoLA.tsv": "a/CoLA.tsv",
        "RTE.tsv": "a/runs/RTE.tsv",
    }


def test_predictions_that_are_there_twice_or_not_at_all_are_errors(tmp_path):
    message = f"{tmp_path}: no predictions to submit; expected files such as AX.tsv"
    with pytest.raises(InputError, match=re.escape(message)):
        gather([tmp_path], ["AX.tsv", "RTE.tsv"])
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "RTE.tsv").touch()
    message = f"RTE.tsv: expected once, found in {tmp_path}/one and {tmp_path}/two"
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        gather([tmp_path], ["AX.tsv", "RTE.tsv"])
