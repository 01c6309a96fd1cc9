"""--config: a JSON file of flags, and recipes by name."""

import json

import pytest

from albert_tf.errors import InputError

RUN = {
    "task_name": "custom",
    "labels": ["007", "yes", "a,b"],
    "text_columns": "text",
    "do_train": True,
    "train_step": 70,
    "learning_rate": 2e-5,
    "output_dir": "runs/2024",
    "init_checkpoint": None,
}


@pytest.fixture
def classify(settings_of, tmp_path):
    """Reads flags of `classify` with the text of a --config file."""

    def read(content, *flags):
        (tmp_path / "run.json").write_text(json.dumps(content))
        return settings_of("classify", f"--config={tmp_path / 'run.json'}", *flags)

    return read


@pytest.mark.parametrize("content", [RUN, {"flags": RUN, "versions": {}}])
def test_values_mean_what_they_mean_on_the_command_line(classify, content):
    task, run, *_ = classify(content)
    assert (task.task_name, task.text_columns) == ("custom", ("text",))
    assert task.labels == ("007", "yes", "a,b")
    assert (run.do_train, run.do_predict) == (True, False)
    assert (run.num_train_steps, run.learning_rate) == (70, 2e-5)
    assert (run.output_dir, run.init_checkpoint) == ("runs/2024", None)


def test_the_command_line_overrules_the_file_wherever_it_stands(classify, settings_of):
    _, run, *_ = classify(RUN, "--num_train_epochs=2", "--nodo_train", "--do_eval")
    assert (run.num_train_steps, run.num_train_epochs) == (None, 2.0)
    assert (run.do_train, run.do_eval) == (False, True)
    _, run, *_ = classify(RUN, "--flagfile=recipes/mrpc.flags")
    assert run.num_train_steps == 800


@pytest.mark.parametrize(
    ("content", "message"),
    [("[1", "run.json: Expecting"), ("[]", "expected a JSON object of flags")],
)
def test_another_kind_of_file_is_one_line(settings_of, tmp_path, content, message):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(InputError, match=message) as mistake:
        settings_of("classify", f"--config={tmp_path / 'run.json'}")
    assert "\n" not in str(mistake.value)


def test_recipes_of_the_package_and_of_the_folder(settings_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = "--flagfile=recipes/mrpc.flags", "--output_dir=run"

    assert settings_of("classify", *flags)[1].num_train_steps == 800
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mrpc.flags").write_text("--do_train\n--train_step=3\n")
    assert settings_of("classify", *flags)[1].num_train_steps == 3
