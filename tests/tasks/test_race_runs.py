"""What run_race.py does, on a few questions."""

import json

import pytest

from albert_tf.errors import InputError
from albert_tf.tasks.race.task import MultipleChoice
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.race import RaceRunSettings

TRAIN = {
    "max_qa_length": 9,
    "train_batch_size": 4,
    "num_train_steps": 1,
    "num_warmup_steps": 0,
    "log_steps": 1,
}
ALONE = {"do_train": False, "do_eval": False}

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture
def run(tmp_path, fine_tune, new_model):
    """Does what the flags say; returns the log."""

    def call(*, new=True, **flags):
        model = new_model(hidden_dropout_prob=0.1) if new else ModelSettings()
        flags["output_dir"] = str(tmp_path / "run")
        return fine_tune(MultipleChoice, RaceRunSettings, flags, model)

    return call


@pytest.fixture
def own(tmp_path):
    """Writes questions about which word is a file's name."""

    def write(name, count, choices=3, **more):
        options = ["list", "string", "object"][:choices]
        row = {"question": "a _ is", "options": options, **more}
        lines = [{**row, "article": f"file {'object ' * n}"} for n in range(count)]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    return write


def test_several_seeds_then_predictions_without_answers(run, own, tmp_path):
    with pytest.raises(InputError, match=r"^--do_eval: requires --data_dir or --eva"):
        run(do_train=False)
    file = own("train", 7, answer=1)
    with open(file, "a") as more:
        asked = {"article": "a", "question": "b", "options": ["c", "d"], "answer": "A"}
        more.write(json.dumps(asked))
    flags = {"num_runs": 2, "gradient_accumulation_steps": 2, **TRAIN}
    log = run(train_file=file, eval_file=file, task_name="own", **flags)
    assert "train: 8 sequences, " in log
    assert "eval_accuracy of 2 runs:" in log
    folder = tmp_path / "run"
    described = json.loads((folder / "task.json").read_text())
    assert (described["max_seq_length"], described["max_qa_length"]) == (40, 9)
    assert described["choices"] == 3
    # Alone, with another number of choices; lengths are those of training.
    test = own("test", 5, choices=2, id=3)
    run(new=False, predict_file=test, do_predict=True, **ALONE)
    found = [
        json.loads(line)
        for line in (folder / "predictions.jsonl").read_text().splitlines()
    ]
    assert [sorted(line) for line in found] == [
        ["choice", "id", "letter", "probabilities"]
    ] * 5
    assert (folder / "predict_results.txt").read_text() == "questions = 5\n"
