"""What a family that labels words reads, learns and writes."""

import json
import re

import numpy as np
import pytest

from albert_tf import InputError
from albert_tf.serve import predict
from albert_tf.tasks.base import Split
from albert_tf.tasks.settings.fine_tuning import FineTuningSettings
from albert_tf.tasks.settings.tagging import TaggingSettings
from albert_tf.tasks.tagging import reading
from albert_tf.tasks.tagging.reading import Sentence
from albert_tf.tasks.tagging.task import Tagging

SIZES = {"embedding_size": 24, "hidden_size": 36, "intermediate_size": 60}
SIZES |= {"type_vocab_size": 2, "initializer_range": 0.1}
LABELS = ("O", "B-LOC", "I-LOC")


@pytest.fixture
def fit(fine_tune, new_model, tmp_path):
    def run(**flags):
        given = {"train_batch_size": 20, "log_steps": 50, "learning_rate": 1.5e-3}
        given |= {"num_train_steps": 1, "output_dir": str(tmp_path / "run"), **flags}
        model = new_model(**SIZES, classifier_dropout_prob=0.0)
        log = fine_tune(Tagging, FineTuningSettings, given, model)
        return tmp_path / "run", log

    return run


@pytest.fixture
def encoded(tokenizer, tiny):
    config = tiny(vocab_size=1500, max_position_embeddings=40)

    def encode(sentences, length, labels=LABELS):
        settings = TaggingSettings(labels=labels, max_seq_length=length)
        task = Tagging(settings, config, tokenizer)
        return task, task.encode_split(Split("dev", sentences))

    return encode


def certain(labels, names=LABELS):
    """Gives each word's label the probability 1."""
    return np.eye(len(names), dtype=np.float32)[[names.index(each) for each in labels]]


def test_labels_stand_on_the_first_token_of_each_word(encoded, tokenizer):
    words = ("file", "Größenwahn", "\u200b", "list")
    labels = ("O", "B-LOC", "I-LOC", "O")
    task, split = encoded([Sentence(words, labels, (1, 2, 3, 4))], 19)
    [first], [long], [last] = map(
        tokenizer.encode_batch, (["file"], words[1:2], ["list"])
    )
    assert len(first) == len(last) == 1 and len(long) > 2
    ids = [tokenizer.cls_id, *first, *long, tokenizer.unk_id, *last, tokenizer.sep_id]
    batch = task.dataset([split], with_labels=True).make_batch(np.array([0]), 19)
    assert batch["input_ids"].tolist() == [ids + [tokenizer.pad_id] * (19 - len(ids))]
    rest = [-100] * (len(long) - 1)
    expected = [-100, 0, 1, *rest, 2, 0]
    assert batch["labels"].tolist() == [expected + [-100] * (19 - len(expected))]
    assert batch["labels"].dtype == np.int32
    assert task.summary(split) == [
        "dev: 1 sentences, 4 words",
        f"dev: 1 sequences, {len(ids)}.0 tokens on average, {len(ids)} at most",
        "  1 words without a token, read as [UNK]",
    ]


@pytest.mark.parametrize("length", [3, 6, 7, 12])
def test_every_word_of_a_long_sentence_is_labelled_once(length, encoded):
    words = ("file", "list", "a", "the") * 4
    rng = np.random.default_rng(length)
    sentences = []
    for count in (16, 1, 5):
        labels = tuple(LABELS[i] for i in rng.integers(0, 3, count))
        sentences.append(Sentence(words[:count], labels, (1,) * count))
    task, split = encoded(sentences, length)
    source = task.dataset([split], with_labels=True)
    assert source.lengths.max() == min(length, 18)
    # What is learned is also what is predicted.
    rows = [source.make_batch(np.array([row]), length) for row in range(len(source))]
    kept = [{"outputs": np.eye(3)[np.maximum(row["labels"][0], 0)]} for row in rows]
    answers = task.postprocess(split, iter(kept))
    np.testing.assert_array_equal(
        answers, np.concatenate([certain(sentence.labels) for sentence in sentences])
    )
    assert sum((row["labels"] >= 0).sum() for row in rows) == 22
    # Of an evaluation that ends before, whole sentences count.
    np.testing.assert_array_equal(
        task.postprocess(split, iter(kept[:-1])), answers[:17]
    )


def test_scores_and_files_are_those_worked_by_hand(encoded):
    sentences = [
        Sentence(("New York", "is"), ("B-LOC", "O"), (1, 2)),
        Sentence(("Oslo",), ("B-LOC",), (4,)),
    ]
    task, split = encoded(sentences, 9)
    answers = certain(["B-LOC", "O", "O"])
    expected = {"eval_accuracy": 2 / 3, "eval_precision": 1.0}
    expected |= {"eval_recall": 0.5, "eval_f1": 2 / 3}
    assert task.compute_metrics(split, answers) == pytest.approx(expected)
    files = task.prediction_files(split, answers)
    assert files.pop("dev_confusion_matrix.png").startswith(b"\x89PNG")
    report = files.pop("dev_label_scores.txt").splitlines()[2]
    assert report.split() == ["LOC", "1.000", "0.500", "0.667", "2"]
    assert files == {
        "dev_predictions.txt": "New York\tB-LOC\tB-LOC\nis O O\n\nOslo B-LOC O\n\n"
    }
    task.evaluate_splits([(split, answers)])
    matrix = task.confusions["dev"]
    assert matrix.counts.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    assert matrix.labels == LABELS
    unlabelled = [sentence._replace(labels=None) for sentence in sentences]
    task, split = encoded(unlabelled, 9)
    assert task.compute_metrics(split, answers) == {}
    assert task.prediction_files(split, answers) == {
        "dev_predictions.txt": "New York\tB-LOC\nis O\n\nOslo O\n\n"
    }


def test_labels_that_are_no_entities_are_scored_word_by_word(encoded):
    sentences = [Sentence(("a", "list", "is"), ("DT", "NN", "VB"), (1, 2, 3))]
    task, split = encoded(sentences, 9, ("DT", "NN", "VB"))
    answers = certain(["DT", "NN", "NN"], ("DT", "NN", "VB"))
    assert task.key_metric == "eval_accuracy"
    assert task.compute_metrics(split, answers) == {
        "eval_accuracy": pytest.approx(2 / 3)
    }
    report = task.prediction_files(split, answers)["dev_label_scores.txt"].splitlines()
    assert [line.split() for line in report[2:5]] == [
        ["DT", "1.000", "1.000", "1.000", "1"],
        ["NN", "0.500", "1.000", "0.667", "1"],
        ["VB", "0.000", "0.000", "0.000", "1"],
    ]


def test_own_sentences_are_learned_by_heart(fit, data):
    """A run on the shipped sentences: F1 1.0, files, raw text."""
    files = data / "tagging"
    flags = dict.fromkeys(("train_file", "eval_file"), str(files / "train.txt"))
    flags |= {"predict_file": str(files / "valid.txt"), "max_seq_length": 30}
    flags |= dict.fromkeys(("do_train", "do_eval", "do_predict"), True)
    run, log = fit(num_train_steps=200, save_checkpoints_steps=200, **flags)
    assert "train: 40 sentences, " in log
    assert json.loads((run / "model.ckpt-best.json").read_text())["eval_f1"] == 1.0
    gold = reading.read_file(files / "train.txt")
    written = reading.read_file(run / "dev_predictions.txt")
    assert [sentence[:2] for sentence in written] == [s[:2] for s in gold]
    report = (run / "dev_label_scores.txt").read_text()
    assert re.search(r"micro avg +1.000 +1.000 +1.000 +70\n", report)
    lines = (run / "test_predictions.txt").read_text().splitlines()
    assert lines.count("") == 8 and lines[0].startswith("Maria B-PER ")
    [row] = predict.load(run)(["The Danish painter Lars Holm lives in Aarhus."])
    spans = [(span["type"], span["text"]) for span in row["spans"]]
    assert spans == [("MISC", "Danish"), ("PER", "Lars Holm"), ("LOC", "Aarhus")]


@pytest.fixture
def files(tmp_path):
    paths = {}
    texts = {"one": "a O\nb B-X\n", "two": "a O\nb B-Y", "bare": "a\n"}
    for name, text in texts.items():
        (tmp_path / f"{name}.txt").write_text(text)
        paths[name] = str(tmp_path / f"{name}.txt")
    return paths


@pytest.mark.usefixtures("eagerly")
def test_a_model_keeps_its_labels(fit, files, refuses):
    run, _ = fit(train_file=files["one"], do_train=True)
    assert json.loads((run / "task.json").read_text())["labels"] == ["O", "B-X", "I-X"]
    fit(predict_file=files["bare"], do_predict=True)
    assert (run / "test_predictions.txt").read_text().startswith("a ")
    with refuses(
        f"{files['two']}:2: label 'B-Y'; expected one of 'O', 'B-X', 'I-X' (from "
        f"--train_file, --labels or the model's folder)"
    ):
        fit(eval_file=files["two"], do_eval=True)
    with pytest.raises(InputError, match=r"a model with labels \['O', 'B-X', 'I-X'\]"):
        fit(train_file=files["two"], do_train=True)


def test_files_that_are_missing_or_have_no_labels(fit, files, refuses):
    with refuses("--do_train: requires --train_file"):
        fit(do_train=True)
    with refuses(
        f"{files['bare']}:1: no labels to train or evaluate on; expected a second "
        f"column, or in JSON lines the key 'tags' (--label_column)"
    ):
        fit(do_train=True, train_file=files["bare"])
    with refuses("--labels: required without --train_file or saved labels"):
        fit(do_predict=True, predict_file=files["bare"])
