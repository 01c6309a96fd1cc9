import json

import pytest
from helpers import SHARED

from albert_tf.errors import InputError
from albert_tf.tasks import catalogue, glue, metrics
from albert_tf.tasks.text_task import TextTask
from albert_tf.text import inputs
from albert_tf.text.tokenization import SentencePieceTokenizer

TASKS = [task for task in vars(glue).values() if isinstance(task, TextTask)]
SPLITS = [(task, split) for task in TASKS for split in ("train", "dev", "test")]
# The recorded tables of QQP hold a row that lacks cells; the release drops it.
BROKEN = {("qqp", "train"): 1, ("qqp", "dev"): 1}

real_data = pytest.mark.skipif(not SHARED.exists(), reason="needs the GLUE data")


def read(data, task, split):
    bad = BROKEN.get((task.name, split), 0)
    table = task.read(split, data / "glue_own", skip_bad_rows=bad > 0)
    assert len(table.skipped) == bad
    return table.rows


def check_features(found, features, tokenizer, task, length):
    encoded = inputs.encode(
        tokenizer,
        [example.text_a for example in found],
        [example.text_b for example in found] if len(task.text) == 2 else None,
        length,
        num_threads=2,
    )
    batch = inputs.pad(encoded, range(len(found)), length, tokenizer.pad_id)
    assert len(found) == len(features) - 1  # the last is the release's padding
    for row, feature in enumerate(features[:-1]):
        padding = [0] * (length - feature["n"])
        ids, ones = feature["input_ids"], [1] * feature["n"]
        # Recorded as the lengths of both segments, or [0] where there is one.
        second = sum(feature["ones_in_segment_ids"][1:])
        segments = [0] * (feature["n"] - second) + [1] * second
        assert batch["input_ids"][row].tolist() == ids + padding
        assert batch["input_mask"][row].tolist() == ones + padding
        assert batch["segment_ids"][row].tolist() == segments + padding


@pytest.fixture(scope="module")
def recorded(golden):
    return golden("glue_own.json")


def seen(text, tokenizer):
    """Returns a text as the recording has it: long ones are their lengths."""
    clean = text and tokenizer.clean(text)
    return len(clean) if clean and len(clean) > 300 else clean


@pytest.mark.parametrize(("task", "split"), SPLITS, ids=lambda x: getattr(x, "name", x))
def test_examples_and_features_are_the_released_ones(
    data, recorded, tokenizer, task, split
):
    key = f"{task.name}/{split}"
    found = read(data, task, split)
    if key not in recorded["examples"]:  # the release reads no AX but to predict
        assert task is glue.AX
        return
    rows = recorded["examples"][key]
    assert [
        [seen(example.text_a, tokenizer), seen(example.text_b, tokenizer)]
        for example in found
    ] == [row[1:3] for row in rows]
    features, labels = (recorded["small"][key][x] for x in ("features", "labels"))
    check_features(found, features, tokenizer, task, recorded["max_seq_length"])
    assert list(task.labels or [None]) == labels
    if split == "test":
        # The release gives these the first label; here they have none.
        assert [(x.guid, x.label) for x in found] == [(row[0], None) for row in rows]
    else:
        assert [example.label for example in found] == [row[3] for row in rows]
        ids = [feature["label_ids"][0] for feature in features[:-1]]
        assert task.targets(found).tolist() == ids


@real_data
def test_features_of_the_official_vocabulary_are_the_released_ones(data):
    official = SentencePieceTokenizer(SHARED / "data/albert_vocab/30k-clean.model")
    recorded = json.loads((SHARED / "golden/glue_own.json").read_text())
    for task, split in SPLITS:
        expected = recorded["official_30k"][f"{task.name}/{split}"]
        if not isinstance(expected, str):
            check_features(
                read(data, task, split),
                expected["features"],
                official,
                task,
                recorded["max_seq_length"],
            )


OFFICIAL = {
    "cola": (8551, 1043, 1063),
    "sst-2": (67349, 872, 1821),
    "mrpc": (3668, 408, 1725),
    "rte": (2490, 277, 3000),
    "sts-b": (5749, 1500, 1379),
    "wnli": (635, 71, 146),
    "qnli": (None, 5463, 5463),
    "ax": (None, None, 1104),
}


@real_data
@pytest.mark.parametrize("name", OFFICIAL)
def test_every_row_of_the_official_tables_is_read(name):
    task = catalogue.get_task(name)
    for split, count in zip(("train", "dev", "test"), OFFICIAL[name], strict=True):
        if count is not None:
            table = task.read(split, SHARED / "data/glue")
            assert len(table.rows) == count
            # Numbered from 0 on, as the site wants it.
            if split == "test":
                assert [x.guid for x in table.rows] == [str(i) for i in range(count)]


@pytest.mark.parametrize(
    ("task", "row", "problem"),
    [
        (glue.RTE, "0\ta\tb\tneutral",
         "label 'neutral'; expected one of 'entailment', 'not_entailment'"),
        (glue.STSB, "0\ta\tb\t5.1", "label '5.1'; expected a number in [0, 5]"),
        (glue.STSB, "0\ta\tb\tnan", "label 'nan'; expected a number in [0, 5]"),
    ],
)  # fmt: skip
def test_a_broken_row_is_an_error_unless_skipped(tmp_path, refuses, task, row, problem):
    names = [c if isinstance(c, str) else c.name for c in task.text]
    header = "\t".join([task.index, *names, task.label])
    good = "1\ta\tb\t" + ("1.5" if task.labels is None else task.labels[1])
    path = tmp_path / "dev.tsv"
    path.write_text(f"{header}\n{row}\n{good}\n")
    message = f"{path}:2: {problem}"
    with refuses(message):
        task.read("dev", tmp_path)
    table = task.read("dev", tmp_path, skip_bad_rows=True)
    assert table.skipped == [message]
    assert [x.guid for x in table.rows] == ["1"]


def test_rows_of_a_test_table_are_never_skipped(tmp_path):
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\ta\n1\n")
    with pytest.raises(InputError, match=r"test\.tsv:3: 1 cells; expected 2"):
        glue.COLA.read("test", tmp_path, skip_bad_rows=True)


NAMES = {"SST-2": glue.SST2, "sst2": glue.SST2, "Sts_B": glue.STSB, "CoLA": glue.COLA}
NAMES |= {"mnli_m": glue.MNLI, "AX": glue.AX}
NAMES |= dict.fromkeys(("MNLI-mm", "mismnli"), glue.MISMATCHED_MNLI)


@pytest.mark.parametrize(("name", "task"), NAMES.items())
def test_case_and_dashes_of_a_name_do_not_count(name, task, refuses):
    assert catalogue.get_task(name) is task
    names = ", ".join(sorted(catalogue.TASKS))
    with refuses(f"--task_name=glue: must be one of {names} or custom"):
        catalogue.get_task("glue")


def test_tables_are_found_below_the_root_and_in_the_tasks_own_folder(data, refuses):
    root = data / "glue_own"
    assert glue.AX.path("test", root) == root / "diagnostic/diagnostic.tsv"
    assert glue.AX.path("train", root / "MNLI") == root / "MNLI/train.tsv"
    files = {"dev": "STS-B/score.tsv"}
    odd = TextTask(name="odd", files=files, text=("text",), labels=("0", "1"))
    with refuses(
        f"{root}/RTE/STS-B/score.tsv: no such file (nor {root}/RTE/score.tsv); "
        f"expected the dev table of the task odd"
    ):
        odd.path("dev", root / "RTE")
    with refuses("task odd: no test table; it has dev"):
        odd.path("test", root)


def test_scores_have_the_released_names():
    found = {task.name: (tuple(task.metrics), task.key_metric) for task in TASKS}
    accuracy, both = ("eval_accuracy",), ("eval_accuracy", "f1")
    assert found == {
        **dict.fromkeys(found, (accuracy, "eval_accuracy")),
        "cola": (("matthew_corr", "eval_accuracy"), "matthew_corr"),
        **dict.fromkeys(("mrpc", "qqp"), (both, "eval_accuracy")),
        "sts-b": (("pearson", "spearman", "MSE"), "pearson"),
    }
    assert glue.MRPC.metrics["f1"] is metrics.f1
