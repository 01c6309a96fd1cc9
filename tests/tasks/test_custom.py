import dataclasses

import numpy as np
import pytest

from albert_tf.tasks import custom
from albert_tf.tasks.settings.classification import ClassificationSettings


def declare(settings, log=lambda line: None):
    """Finds the labels as a run does."""
    settings = custom.merge_saved_settings(settings, None)
    task = custom.from_settings(settings)
    if task.labels == ():
        skips, dialect = settings.skip_bad_rows, settings.dialect
        table = task.read("train", skip_bad_rows=skips, dialect=dialect, log=log)
        labels = custom.find_labels(task, table.rows, log)
        task = dataclasses.replace(task, labels=labels)
    return task


def test_a_csv_of_pairs_with_the_labels_of_its_training_table(write, refuses):
    task = declare(
        ClassificationSettings(
            train_file=write("a.csv", 'q,a,y,n\n"x, y",z,10,7\nv,w,2,8\nt,u,no,9\n'),
            test_file=write("b.csv", "n,q,a\nrow1,c,d\n"),
            text_columns=("q", "a"),
            label_column="y",
            index_column="n",
        )
    )
    assert task.labels == ("2", "10", "no")
    examples = task.read("train").rows
    assert examples[0] == ("7", "x, y", "z", "10")
    assert task.targets(examples).tolist() == [1, 0, 2]
    assert task.read("test").rows == [("row1", "c", "d", None)]
    with refuses("task custom: no dev table; it has train, test"):
        task.read("dev")


def test_json_lines_with_several_labels_per_row(write):
    path = write(
        "a.jsonl",
        '{"text": "a", "label": ["b", "a"]}\n{"text": "b", "label": []}\n'
        '{"text": "c", "label": "c; a"}\n',
    )
    task, _ = logged(path, kind="multi_label", label_separator=";")
    assert task.labels == ("a", "b", "c")
    examples = task.read("train").rows
    assert task.targets(examples).tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 1]]
    found = task.compute_metrics(np.eye(3, dtype=int), np.eye(3, dtype=int))
    assert found == {"micro_f1": 1.0, "macro_f1": 1.0, "eval_accuracy": 1.0}


def test_numbers_of_a_table_without_header(write):
    path = write("a.tsv", "u1\t-2.5\tred\nu2\t1e3\tblue\n")
    columns = ("user", "label", "text")
    task, _ = logged(path, columns=columns, kind="regression")
    assert (task.labels, task.num_outputs) == (None, 1)
    examples = task.read("train").rows
    assert examples[1] == ("1", "blue", None, 1000.0)
    assert task.key_metric in task.compute_metrics(np.arange(4.0), np.arange(4.0))


def test_labels_given_keep_their_order_and_need_no_training_table(write, refuses):
    path = write("a.tsv", "text\tlabel\nred\tno\nblue\tperhaps\n")
    task = declare(ClassificationSettings(dev_file=path, labels=("yes", "no")))
    assert task.labels == ("yes", "no")
    with refuses(f"{path}:3: label 'perhaps'; expected one of 'yes', 'no'"):
        task.read("dev")
    assert task.targets(task.read("dev", skip_bad_rows=True).rows).tolist() == [1]


ONE = "1 different labels ['1']; expected at least 2"
LIST = "expected a list of labels in JSON or Python"


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (["inf"], {"kind": "regression"}, "{}:2: label 'inf'; expected a number"),
        (["1,5"], {"kind": "regression"}, "{}:2: label '1,5'; expected a number"),
        (["1", "1"], {}, f"{{}}: {ONE}"),
        (["1", "1"], {"labels": ("1",)}, f"--labels: {ONE}"),
        (["0", "x\ty"], {}, "{}:3: 3 cells; expected 2 ('text', 'label')"),
        *(
            ([cell], {"kind": "multi_label"}, f"{{}}:2: {cell!r}; {LIST}")
            for cell in ("['a' 'b']", "[a, b]", "[['a']]", "[null]")
        ),
    ],
)
def test_a_table_that_nothing_can_be_learned_from(
    write, refuses, rows, settings, message
):
    lines = "".join(f"a\t{row}\n" for row in rows)
    path = write("a.tsv", f"text\tlabel\n{lines}")
    with refuses(message.format(path)):
        declare(ClassificationSettings(train_file=path, **settings)).read("train")


def test_flags_that_are_needed_are_named(refuses):
    with refuses(
        "--task_name=custom: requires --train_file, --dev_file or --test_file"
    ):
        declare(ClassificationSettings())
    with refuses(
        "--labels: required without --train_file or a task.json in --output_dir"
    ):
        declare(ClassificationSettings(dev_file="a.tsv"))


def logged(path, **settings):
    lines = []
    settings = ClassificationSettings(train_file=path, **settings)
    return declare(settings, log=lines.append), lines


def test_white_space_around_labels_and_names_of_columns_is_none_of_theirs(write):
    path = write("a.csv", "text, label \nIt works., good\nIt is fast.,good \nNo.,bad\n")
    task, lines = logged(path)
    assert task.labels == ("bad", "good")
    found = [example.label for example in task.read("train").rows]
    assert found == ["good", "good", "bad"]
    assert lines == [f"{path}: labels 'good' 2, 'bad' 1"]
    settings = ClassificationSettings(train_file=path, labels=("good", "bad"))
    assert len(declare(settings).read("train").rows) == 3


def test_labels_that_look_like_mistakes_are_warned_of(write):
    rows = ["bad", "Bad", "not ok", "notok", "nan", "None", "3", "NA"]
    path = write("a.tsv", "text\tlabel\n" + "".join(f"a\t{row}\n" for row in rows))
    _, lines = logged(path)
    assert lines[1:] == [
        f"Warning: {path}: labels 'Bad', 'bad' differ only in case or spaces",
        f"Warning: {path}: labels 'not ok', 'notok' differ only in case or spaces",
        f"Warning: {path}: 'NA' looks like a missing value, but is a label",
        f"Warning: {path}: 'None' looks like a missing value, but is a label",
        f"Warning: {path}: 'nan' looks like a missing value, but is a label",
    ]
    rows = "".join(f"a\t{n}\n" for n in range(23))
    path = write("b.tsv", f"text\tlabel\n{rows}")
    [line] = logged(path)[1]
    assert line.endswith("'19' 1 and 3 others")


CELLS = ['["toxic", "caf\\u00e9"]', "['toxic', 'café']", "['toxic','café']"]
CELLS += ['{"choices": ["toxic", "café"]}', "{'choices': ['toxic', 'café']}"]
CELLS += [" toxic ,café"]


@pytest.mark.parametrize("cell", CELLS)
def test_lists_in_cells_of_several_labels(write, cell):
    quoted = cell.replace('"', '""')
    path = write("a.csv", f'text,label\na,"{quoted}"\nb,[]\n')
    task, lines = logged(path, kind="multi_label")
    assert sorted(task.labels) == ["café", "toxic"]
    assert task.targets(task.read("train").rows).sum(axis=1).tolist() == [2, 0]
    assert lines == [f"{path}: labels 'toxic' 1, 'café' 1"]


def test_a_list_of_one_label_is_that_label(write):
    path = write(
        "a.jsonl", '{"text": "a", "label": ["x"]}\n{"text": "b", "label": "y"}'
    )
    assert [row.label for row in logged(path)[0].read("train").rows] == ["x", "y"]


def test_a_delimiter_is_one_character(refuses):
    with refuses("--delimiter='::': must be one character, or \\t"):
        ClassificationSettings(delimiter="::")
    assert ClassificationSettings(delimiter="\\t").dialect.delimiter == "\t"
