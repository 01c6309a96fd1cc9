"""--config: a YAML or JSON file of flags, and recipes by name."""

import dataclasses

import pytest

from albert_tf.errors import InputError
from albert_tf.tasks.settings.classification import ClassifierRunSettings

YAML = """\
# A run.
task_name: custom
labels: [007, yes, "a,b"]
text_columns: text
do_train: yes
do_eval: true
train_step: 70
learning_rate: 2e-5
output_dir: runs/2024
max_seq_length: 64
init_checkpoint: null
"""


@pytest.fixture
def classify(settings_of, tmp_path):
    """Reads flags of `classify` with the text of a --config file."""

    def read(text, *flags, name="run.yaml"):
        (tmp_path / name).write_text(text)
        return settings_of("classify", f"--config={tmp_path / name}", *flags)

    return read


def test_values_mean_what_they_mean_on_the_command_line(classify):
    task, run, *_ = classify(YAML)
    assert (task.task_name, task.text_columns) == ("custom", ("text",))
    assert task.labels == ("007", "yes", "a,b")
    assert (run.do_train, run.do_eval, run.do_predict) == (True, True, False)
    assert (run.num_train_steps, run.learning_rate) == (70, 2e-5)
    assert (run.output_dir, run.init_checkpoint) == ("runs/2024", None)


def test_json_gives_the_same(classify):
    text = """{"task_name": "custom", "do_train": true, "output_dir": "x",
        "labels": ["007", "yes", "a,b"], "learning_rate": 2e-05, "do_eval": false}"""
    task, run, *_ = classify(text, name="run.json")
    assert task.labels == ("007", "yes", "a,b")
    assert (run.do_train, run.do_eval, run.learning_rate) == (True, False, 2e-5)


def test_the_command_line_overrules_the_file_wherever_it_stands(classify, settings_of):
    _, run, *_ = classify(YAML, "--num_train_epochs=2", "--nodo_eval")
    assert (run.num_train_steps, run.num_train_epochs) == (None, 2.0)
    assert not run.do_eval
    _, run, *_ = classify(YAML, "--flagfile=recipes/mrpc.flags")
    assert run.num_train_steps == 800


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("do_train: 3\n", ":1: do_train: 3: expected true or false"),
        ("\ntrain_step: 1.5\n", ":2: train_step: 1.5: expected an integer"),
        ("learning_rate: fast", ":1: learning_rate: fast: expected a number"),
        ("output_dir: [a, b]", ":1: output_dir: a list: expected a text"),
        ("output_dir: no", ":1: output_dir: no: expected a text"),
        ("labels: {a: 1}", ":1: labels: a mapping: expected texts between commas"),
        (
            "kind: labels",
            ":1: kind: labels: expected one of classification, multi_label, regression",
        ),
        (
            "task_nam: x",
            ":1: task_nam: no such flag, see --help; did you mean task_name?",
        ),
        ("[1]: x", ":1: (no text): no such flag, see --help"),
        ("seed: 1\nseed: 2", ":2: seed: given twice"),
        ("- a\n- b", ": expected names of flags with their values"),
        ("", ": expected names of flags with their values"),
    ],
)
def test_a_mistake_names_file_line_and_key(classify, tmp_path, text, message):
    with pytest.raises(InputError) as mistake:
        classify(text)
    assert str(mistake.value) == f"{tmp_path}/run.yaml{message}"


def test_a_file_that_is_no_yaml_is_one_line(classify, tmp_path):
    with pytest.raises(InputError) as mistake:
        classify("a: [1\nb: 2")
    assert str(mistake.value).startswith(f"{tmp_path}/run.yaml: while parsing a flow")
    assert "\n" not in str(mistake.value)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--config", "--config: expected a file, as in --config=run.yaml"),
        (
            "--config=absent.yaml",
            "absent.yaml: No such file or directory; expected a readable file",
        ),
    ],
)
def test_no_file_is_named(settings_of, flag, message):
    with pytest.raises(InputError) as mistake:
        settings_of("classify", flag)
    assert str(mistake.value) == message


def test_a_recipe_comes_from_the_package_unless_the_folder_has_its_own(
    settings_of, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    flags = "--flagfile=recipes/mrpc.flags", "--output_dir=run"

    def steps():
        [run] = (
            settings
            for settings in settings_of("classify", *flags)
            if isinstance(settings, ClassifierRunSettings)
        )
        return dataclasses.asdict(run)["num_train_steps"]

    assert steps() == 800
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mrpc.flags").write_text("--do_train\n--train_step=3\n")
    assert steps() == 3
