import numpy as np

from albert_tf.tasks import glue
from albert_tf.tasks.submission import glue_file, released_files
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


def test_the_sites_files_have_its_words_and_decimals():
    text = glue_file(glue.STSB, EXAMPLES, NUMBERS)
    assert text == "index\tprediction\n0\t0.000\n1\t3.142\nx7\t5.000\n"
    text = glue_file(glue.COLA, EXAMPLES, PROBABILITIES)
    assert text == "index\tprediction\n0\t1\n1\t0\nx7\t0\n"
    text = glue_file(glue.AX, EXAMPLES[:1], np.array([[0.2, 0.1, 0.7]]))
    assert text == "index\tprediction\n0\tneutral\n"


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
