"""What run_race.py does, on a few questions."""

import json
import re

import numpy as np
import pytest

from albert_tf.errors import InputError
from albert_tf.tasks.race.task import MultipleChoice
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.race import RaceRunSettings

SIZES = {
    "vocab_size": 1500,
    "embedding_size": 6,
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 40,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.0,
}
TRAIN = {
    "max_qa_length": 9,
    "train_batch_size": 4,
    "num_train_steps": 2,
    "num_warmup_steps": 0,
    "log_steps": 1,
}
ALONE = {"do_train": False, "do_eval": False}

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture
def run(data, tmp_path, fine_tune):
    """Does what the flags say; returns the log."""
    (tmp_path / "config.json").write_text(json.dumps(SIZES))

    def call(folder="run", *, new=True, model=None, **flags):
        given = {
            "albert_config_file": str(tmp_path / "config.json"),
            "spm_model_file": str(data / "spm_small.model"),
        }
        flags["output_dir"] = str(tmp_path / folder)
        model_settings = ModelSettings(**(given if new else {}), **(model or {}))
        return fine_tune(MultipleChoice, RaceRunSettings, flags, model_settings)

    return call


@pytest.fixture
def own(tmp_path):
    """Writes questions about which word is a file's name."""

    def write(name, count, **more):
        lines = [
            {
                "article": f"file {'object ' * n}",
                "question": "a _ is",
                "options": ["list", "string", "object"][: more.get("choices", 3)],
                **{key: value for key, value in more.items() if key != "choices"},
            }
            for n in range(count)
        ]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return str(path)

    return write


def test_several_seeds_then_predictions_without_answers(run, own, tmp_path):
    file = own("train", 7, answer=1)
    with open(file, "a") as more:
        asked = {"article": "a", "question": "b", "options": ["c", "d"], "answer": "A"}
        more.write(json.dumps(asked))
    log = run(
        train_file=file,
        eval_file=file,
        task_name="own",
        num_runs=2,
        gradient_accumulation_steps=2,
        **TRAIN,
    )
    assert "train: 8 questions with 2 to 3 choices about 8 articles, " in log
    assert "eval_accuracy of 2 runs:" in log
    folder = tmp_path / "run"
    described = json.loads((folder / "task.json").read_text())
    assert (described["max_seq_length"], described["max_qa_length"]) == (40, 9)
    assert described["choices"] == 3
    # Alone, with another number of choices; lengths are those of training.
    log = run(
        new=False,
        predict_file=own("test", 5, choices=2, id=3),
        do_predict=True,
        **ALONE,
    )
    assert "test: 5 questions with 2 choices about 5 articles, " in log
    found = [
        json.loads(line)
        for line in (folder / "predictions.jsonl").read_text().splitlines()
    ]
    assert [sorted(line) for line in found] == [
        ["choice", "id", "letter", "probabilities"]
    ] * 5
    assert (folder / "predict_results.txt").read_text() == "questions = 5\n"


def test_accuracy_of_what_was_predicted_counts_known_answers(run, own, tmp_path):
    run(train_file=own("train", 4, answer=1), do_eval=False, **TRAIN)
    lines = (tmp_path / "train.jsonl").read_text().splitlines()
    unknown = json.dumps({**json.loads(lines[0]), "answer": None})
    (tmp_path / "train.jsonl").write_text("\n".join([*lines, unknown]))
    flags = {"predict_file": str(tmp_path / "train.jsonl"), "do_predict": True}
    log = run(new=False, **flags, **ALONE)
    written = (tmp_path / "run/predictions.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in written]
    assert [line.get("answer") for line in found] == [1, 1, 1, 1, None]
    right = np.mean([line["choice"] == 1 for line in found[:4]])
    loss = np.mean([-np.log(line["probabilities"][1]) for line in found[:4]])
    results = (tmp_path / "run/predict_results.txt").read_text()
    scores = dict(line.split(" = ") for line in results.splitlines())
    assert float(scores.pop("eval_loss")) == pytest.approx(loss, rel=1e-5)
    assert scores == {"answered": "4", "eval_accuracy": str(right), "questions": "5"}
    assert f"test: eval_accuracy {right:.4f}\n" in log


def test_mistakes_in_flags(run, own):
    with pytest.raises(
        InputError, match=r"^--do_eval: requires --data_dir or --eval_file"
    ):
        run(do_train=False)
    message = (
        "--max_seq_length=41: must be at most 40, the model's max_position_embeddings"
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        run(train_file=own("train", 4, answer=1), max_seq_length=41, do_eval=False)
