"""What run_squad.py does, with a model that is small enough to learn in seconds."""

import json

import numpy as np
import pytest

from albert_tf.errors import InputError
from albert_tf.tasks import squad
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.squad import SquadRunSettings, SquadSettings
from albert_tf.tasks.squad import reading
from albert_tf.tasks.squad.task import QuestionAnswering
from albert_tf.train import loop

THINGS = ["ball", "box", "car", "cup", "dog", "hat", "jar", "key", "pen", "pig"]
COLOURS = ["red", "blue", "green", "black", "white", "brown", "pink", "grey", "teal"]
ORDINALS = ["first", "second", "third", "fourth", "fifth"]
# Of a model that learns in seconds.
SIZES = {"vocab_size": 33, "embedding_size": 24, "hidden_size": 64}
SIZES |= {"num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 100}
SIZES |= {"max_position_embeddings": 40, "type_vocab_size": 2}


def questions(path, version, seed, answers=True):
    """Asks for the first colour, the second, ...; in 2.0 for one too many."""
    random = np.random.default_rng(seed)
    paragraphs = []
    for number in range(6):
        things = random.choice(THINGS, 4, replace=False)
        colours = random.choice(COLOURS, 4, replace=False)
        context = " ".join(
            f"the {thing} is {colour} ."
            for thing, colour in zip(things, colours, strict=True)
        )
        asked = []
        for place, word in enumerate(ORDINALS[: 4 if version == "1.1" else 5]):
            one = {"id": f"{seed}-{number}-{place}", "question": f"the {word} ?"}
            known = [
                {"text": str(colour), "answer_start": context.find(colour)}
                for colour in colours[place : place + 1]
            ]
            if answers:
                one |= {"answers": known, "is_impossible": not known}
            asked.append(one)
        paragraphs.append({"context": context, "qas": asked})
    contents = {"version": version, "data": [{"paragraphs": paragraphs}]}
    path.write_text(json.dumps(contents))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny):
    folder = tmp_path_factory.mktemp("files")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "is", ".", "?"]
    (folder / "vocab.txt").write_text("\n".join([*words, *THINGS, *COLOURS, *ORDINALS]))
    config = tiny(**SIZES, initializer_range=0.1, classifier_dropout_prob=0.0)
    (folder / "config.json").write_text(config.to_json_string())
    for version in ("1.1", "2.0"):
        questions(folder / f"train-{version}.json", version, 1)
        questions(folder / f"other-{version}.json", version, 2)
        questions(folder / f"test-{version}.json", "1.1", 3, answers=False)
    return folder


@pytest.fixture(scope="module")
def run(files, tmp_path_factory, fine_tune):
    """Runs in a folder; returns it and what was said."""
    root = tmp_path_factory.mktemp("runs")

    def call(folder, **changes):
        folder = root / folder
        fields = {"output_dir": str(folder), "max_seq_length": 29, "doc_stride": 8}
        fields |= {"max_query_length": 4, "pad_to_multiple_of": 0}  # one graph
        # One batch.
        fields |= {"eval_batch_size": 30, "predict_batch_size": 30}
        fields |= changes
        model = ModelSettings(
            albert_config_file=str(files / "config.json"),
            vocab_file=str(files / "vocab.txt"),
        )
        log = fine_tune(QuestionAnswering, SquadRunSettings, fields, model)
        return folder, log

    call.root = root
    return call


def train(run, files, version, folder, **changes):
    path = str(files / f"train-{version}.json")
    fields = {"do_train": True, "train_file": path, "train_batch_size": 24}
    fields |= {"do_predict": True, "predict_file": path, "learning_rate": 0.0015}
    fields |= {"num_train_steps": 120, "num_warmup_steps": 30}
    fields |= {"save_checkpoints_steps": 60, "log_steps": 60}
    return run(folder, **{**fields, **changes})


@pytest.fixture(scope="module")
def one(run, files):
    longer = {"num_train_steps": 250, "num_warmup_steps": 50, "learning_rate": 0.001}
    return train(run, files, "1.1", "one", **longer)


@pytest.fixture(scope="module")
def two(run, files):
    return train(run, files, "2.0", "two")


def read(path):
    return json.loads(path.read_text())


def blocks(folder):
    found = (folder / "eval_results.txt").read_text().split(f"{'=' * 50}\n")
    return [dict(line.split(" = ") for line in b.splitlines()) for b in found[:-1]]


@pytest.mark.slow
def test_version_1_is_learned_and_predicted_again(one, run, files):
    folder, text = one
    data = files / "train-1.1.json"
    assert "train-1.1.json: SQuAD 1.1" in text
    assert "training   250 steps" in text
    metrics = squad.evaluate_files(data, folder / "predictions.json")
    assert metrics["f1"] > 95
    *_, last = blocks(folder)
    assert set(last) == {"exact_match", "f1", "global_step"}
    assert float(last["f1"]) == metrics["f1"]
    assert not (folder / "null_odds.json").exists()
    described = read(folder / "task.json")
    expected = {"kind": "question_answering", "version": "1.1", "head": "linear"}
    assert described == {**described, **expected}
    before = (folder / "predictions.json").read_bytes()
    (folder / "predictions.json").unlink()
    # Neither training files nor answers, lengths or version are needed.
    run("one", do_predict=True, predict_file=str(data), max_seq_length=None)
    assert (folder / "predictions.json").read_bytes() == before


def test_version_2_is_learned_and_the_threshold_is_stored(two, run, files):
    folder, text = two
    data = files / "train-2.0.json"
    assert "train-2.0.json: SQuAD 2.0" in text
    *_, last = blocks(folder)
    assert float(last["best_f1"]) > 95
    # Not the best one for the questions that are judged.
    assert float(last["null_score_diff_threshold"]) == 0.0
    odds, texts = read(folder / "null_odds.json"), read(folder / "predictions.json")
    assert {id for id, text in texts.items() if not text} == {
        id for id, value in odds.items() if value > 0
    }
    assert squad.evaluate_files(data, folder / "predictions.json")["f1"] == float(
        last["f1"]
    )
    stored = read(folder / "task.json")
    best = read(folder / "model.ckpt-best.json")
    # In the middle between two questions.
    above = min(value for value in odds.values() if value > best["best_f1_thresh"])
    center = (best["best_f1_thresh"] + above) / 2
    assert stored["null_score_diff_threshold"] == pytest.approx(center, abs=1e-4)


def threshold_of(text):
    (line,) = [line for line in text.splitlines() if "null_score_diff_thr" in line]
    return float(line.rpartition(" ")[2])


@pytest.mark.usefixtures("eagerly")
def test_thresholds_come_from_where_they_should(two, run, files):
    folder, _ = two
    new = files / "other-2.0.json"
    kept = (folder / "task.json").read_bytes()
    stored = read(folder / "task.json")["null_score_diff_threshold"]
    predict = {"do_predict": True, "predict_file": str(new)}
    # Found on other questions.
    _, text = run("two", **predict)
    assert threshold_of(text) == pytest.approx(stored, abs=1e-4)
    assert (folder / "task.json").read_bytes() == kept
    # As released, on these very questions.
    _, text = run("two", **predict, fit_threshold=True)
    metrics = blocks(folder)[-1]
    fitted = float(metrics["null_score_diff_threshold"])
    assert stored != fitted > float(metrics["best_f1_thresh"])
    assert metrics["f1"] == metrics["best_f1"]
    assert read(folder / "task.json")["null_score_diff_threshold"] == fitted
    # What is stored now was fitted on what is scored.
    assert threshold_of(run("two", **predict)[1]) == 0.0
    _, text = run("two", **predict, null_score_diff_threshold=1e9)
    assert "" not in read(folder / "predictions.json").values()
    assert read(folder / "task.json")["null_score_diff_threshold"] == 1e9


@pytest.mark.usefixtures("eagerly")
def test_questions_without_answers_are_answered_but_not_scored(two, run, files):
    folder, path = two[0], files / "test-2.0.json"
    before = (folder / "eval_results.txt").read_bytes()
    _, text = run("two", do_predict=True, predict_file=str(path))
    assert f"{path}: not scored; question '3-0-0' has no answer\n" in text
    asked = [each.id for each in reading.read(path).questions]
    assert list(read(folder / "predictions.json")) == asked
    assert list(read(folder / "nbest_predictions.json")) == asked
    assert (folder / "eval_results.txt").read_bytes() == before
    with pytest.raises(InputError, match="'3-0-0' has no answer; --do_eval and"):
        run("two", do_eval=True, predict_file=str(path))
    flags = {"do_predict": True, "predict_file": str(path)}
    with pytest.raises(InputError, match="head 'conditional', but this task has 'l"):
        run("two", **flags, head="linear")
    with pytest.raises(InputError, match=r"version '2\.0', but this task has '1\.1'"):
        run("two", **flags, version_2_with_negative=False)


@pytest.mark.usefixtures("eagerly")
def test_what_is_wrong_with_the_questions_is_logged(run, files, tmp_path):
    """Answers of two tokens, of which one is not there and one is elsewhere."""
    content = json.loads((files / "train-2.0.json").read_text())
    paragraphs = content["data"][0]["paragraphs"]
    answers = [a for p in paragraphs for q in p["qas"] for a in q["answers"]]
    for answer in answers:
        answer["text"] += "  ."
    answers[4]["text"] = "nowhere"
    answers[7]["answer_start"] -= 2
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(content))
    changes = {
        **{"train_file": str(path), "do_predict": False, "num_train_steps": 1},
        **{"num_warmup_steps": 0, "max_seq_length": 15, "doc_stride": 99},
    }
    with pytest.raises(InputError, match=r"'1-1-0' \(\"nowhere\" is not in its contex"):
        train(run, files, "2.0", "others", **changes)
    expected = [
        f"Warning: {path}: 1 of 30 questions are left out: '1-1-0'",
        f"Warning: {path}: 1 of 23 answers are not at answer_start",
        "'1-1-3' (+2)",
        # The second of four, in windows of 9 tokens.
        f"Warning: {path}: 6 answers fit into no window",
    ]
    for is_cached in (False, True):
        _, text = train(run, files, "2.0", "others", skip_bad_rows=True, **changes)
        assert [line for line in expected if line not in text] == []
        assert ("cached features" in text) == is_cached


@pytest.mark.usefixtures("eagerly")
def test_the_threshold_of_the_best_checkpoint_outlives_a_kill(run, files, monkeypatch):
    """Killed after its last step, and again after the first one of a longer run."""

    def killed(*given):
        raise KeyboardInterrupt

    steps = {"num_warmup_steps": 0, "save_checkpoints_steps": 1, "log_steps": 1}
    monkeypatch.setattr(QuestionAnswering, "predict_and_write", killed)
    with pytest.raises(KeyboardInterrupt):
        train(run, files, "2.0", "killed", num_train_steps=2, **steps)
    folder = run.root / "killed"
    best, noted = (read(folder / f"{n}.json") for n in ("model.ckpt-best", "task"))
    assert noted["null_score_diff_threshold"] not in (0.0, best["best_f1_thresh"])
    monkeypatch.setattr(loop.Run, "train_and_evaluate", killed)
    with pytest.raises(KeyboardInterrupt):
        train(run, files, "2.0", "killed", num_train_steps=4, **steps)
    assert read(folder / "task.json") == noted
    given = {"null_score_diff_threshold": 1.5}
    with pytest.raises(KeyboardInterrupt):
        train(run, files, "2.0", "killed", num_train_steps=4, **steps, **given)
    assert read(folder / "task.json")["null_score_diff_threshold"] == 1.5


@pytest.mark.parametrize(
    ("name", "value"), [("null_score_diff_threshold", 0.5), ("fit_threshold", True)]
)
def test_a_threshold_is_refused_where_every_question_has_an_answer(
    name, value, refuses
):
    settings = SquadSettings(**{name: value})
    run = SquadRunSettings(output_dir="run", export_dir="served")
    with refuses(
        f"--{name}={value}: only for SQuAD 2.0; in SQuAD 1.1 every question has an "
        f"answer"
    ):
        QuestionAnswering.read_examples(settings, None, run, print)
