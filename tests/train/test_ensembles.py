"""Means of several models, compared with the means of their files in NumPy."""

import collections
import functools
import gc
import json

import numpy as np
import pytest
from helpers import refusal

from albert_tf.serve import predict
from albert_tf.serve.settings import PredictSettings
from albert_tf.tasks.classification import Classification
from albert_tf.tasks.race.task import MultipleChoice
from albert_tf.tasks.settings.classification import ClassifierRunSettings
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.pipeline import PipelineSettings
from albert_tf.tasks.settings.race import RaceRunSettings
from albert_tf.tasks.settings.squad import SquadRunSettings
from albert_tf.tasks.squad.task import QuestionAnswering

TRAIN = {"do_train": True, "do_eval": True, "num_train_steps": 1, "train_batch_size": 4}

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module", autouse=True)
def hide_older_objects():
    """Saves time: the package collects garbage after each member of an ensemble."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(data, new_model, root, fine_tune):
    """Fine-tunes on MRPC, SQuAD or RACE, and returns the folder and the log."""
    row = {"article": "a list", "question": "is", "answer": 1}
    rows = [{**row, "options": [*options]} for options in ("ab", "abcd")]
    (root / "race.jsonl").write_text("\n".join(map(json.dumps, rows)))
    content = json.loads((data / "squad_own.json").read_text())
    for part in content["data"]:  # without the long passage
        passages = part["paragraphs"]
        part["paragraphs"] = [p for p in passages if len(p["context"]) < 400]
    (root / "squad.json").write_text(json.dumps(content))
    race = dict.fromkeys(("train_file", "eval_file"), str(root / "race.jsonl"))
    squad = dict.fromkeys(("train_file", "predict_file"), str(root / "squad.json"))
    squad |= {"predict_batch_size": 64, "eval_batch_size": 64}
    mrpc = {"task_name": "mrpc", "data_dir": str(data / "glue_own")}
    mrpc |= {"predict_batch_size": 10, "eval_batch_size": 10}
    families = {
        "mrpc": (Classification, ClassifierRunSettings, mrpc),
        "race": (MultipleChoice, RaceRunSettings, race),
        "squad": (QuestionAnswering, SquadRunSettings, squad),
    }

    def call(name, task="mrpc", layers=1, **flags):
        model = ModelSettings()
        if flags.get("do_train"):
            sizes = {"max_position_embeddings": 64, "num_hidden_layers": layers}
            # So that the members answer differently after one step.
            model = new_model(**sizes, initializer_range=1.0)
        family, settings, files = families[task]
        flags = {**files, "output_dir": str(root / name), **flags}
        return root / name, fine_tune(family, settings, flags, model)

    return call


@pytest.fixture(scope="module")
def members(run):
    """Trains models of different lengths with 1, 2 and 1 layers, once a task."""

    @functools.cache
    def call(task, count, **flags):
        folders = []
        for number in range(1, count + 1):
            layers = 2 if number == 2 else 1
            own = {"max_seq_length": 30 + number, "layers": layers, "seed": number}
            todo = {**TRAIN, **flags, "do_predict": True}
            folders.append(run(f"{task}{number}", task, **own, **todo)[0])
        return folders

    return call


def rows(folder):
    lines = (folder / "test_results.tsv").read_text().splitlines()
    return np.array([line.split("\t") for line in lines], np.float32)


def test_classes_have_the_mean_of_the_probabilities(run, members, root):
    parts = members("mrpc", 3)
    todo = {"do_eval": True, "do_predict": True}
    folder, log = run("mean", ensemble=(f"{root}/mrpc?",), **todo)
    np.testing.assert_array_equal(rows(folder), np.mean([*map(rows, parts)], axis=0))
    table = json.loads((folder / "ensemble.json").read_text())
    assert [m["folder"] for m in table["members"]] == [*map(str, parts)]
    stored = (parts[1] / "eval_results.txt").read_text()
    assert f"eval_accuracy = {table['members'][1]['eval_accuracy']}\n" in stored
    assert "ensemble" in log.splitlines()[-1]


def test_answers_have_the_mean_of_the_probabilities_by_text_and_place(run, members):
    flags = {"version_2_with_negative": True, "doc_stride": 8, "max_query_length": 12}
    # More than the number of spans, so that no list is cut.
    flags |= {"null_score_diff_threshold": 0.25, "n_best_size": 999}
    flags["max_answer_length"] = 4
    parts = members("squad", 2, **flags, do_eval=False)
    ensemble = tuple(map(str, parts))
    folder, _ = run("s", "squad", do_eval=True, do_predict=True, ensemble=ensemble)

    def read(name, *folders):
        texts = [(each / f"{name}.json").read_text() for each in folders or parts]
        return list(map(json.loads, texts))

    [odds], every = read("null_odds", folder), read("null_odds")
    for id, value in odds.items():
        assert value == pytest.approx(np.mean([each[id] for each in every]), abs=1e-12)
    [best], every = read("nbest_predictions", folder), read("nbest_predictions")
    [predictions] = read("predictions", folder)
    for id, entries in best.items():
        probabilities = [entry["probability"] for entry in entries]
        assert probabilities == sorted(probabilities, reverse=True)
        means, totals = collections.Counter(), collections.Counter()
        for entry in (entry for each in every for entry in each[id]):
            means[entry["text"]] += entry["probability"] / 2
        for entry in entries:  # a text at several positions has several entries
            totals[entry["text"]] += entry["probability"]
        assert totals == pytest.approx(means, abs=1e-12)
        assert predictions[id] == ("" if odds[id] > 0.25 else entries[0]["text"])
    assert len(best) == len(odds) > 30


def test_the_best_ensemble_is_searched_forward(run, members, root):
    parts = {*map(str, members("mrpc", 3))}
    search = {"ensemble": (f"{root}/mrpc?",), "ensemble_search": 2}
    folder, log = run("searched", do_eval=True, **search)
    table = json.loads((folder / "ensemble.json").read_text())
    scores = [step["eval_accuracy"] for step in table["search"]]
    assert len(scores) == 2
    best = max(table["members"], key=lambda member: member["eval_accuracy"])
    assert len({member["eval_accuracy"] for member in table["members"]}) > 1
    assert scores[0] == best["eval_accuracy"]
    assert table["search"][0]["added"] == best["folder"]
    pairs = {}
    for name in parts - {best["folder"]}:
        pair, _ = run("pair", do_eval=True, ensemble=(best["folder"], name))
        written = json.loads((pair / "ensemble.json").read_text())
        pairs[name] = written["ensemble"]["eval_accuracy"]
    assert scores[1] == max(pairs.values()) == pairs[table["search"][1]["added"]]
    assert table["ensemble"]["eval_accuracy"] == max(scores)
    assert len(table["chosen"]) == 1 + scores.index(max(scores))
    assert log.count("Search: ") == 2


def test_all_runs_answer_in_place_of_the_best(run):
    todo = {"do_predict": True, "max_seq_length": 16}
    folder, log = run("runs", ensemble=(), num_runs=2, **todo, **TRAIN)
    assert log.count("Member ") == 2
    each = []
    for number in (1, 2):
        start = str(folder / f"run-{number}")
        alone, _ = run(f"alone{number}", init_checkpoint=start, **todo)
        each.append(rows(alone))
    np.testing.assert_array_equal(rows(folder), np.mean(each, axis=0))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"ensemble": ("nowhere",)}, "--ensemble: no fine-tuned model in 'nowhere'"),
        (
            {"ensemble": ("m1", "other")},
            "has task 'cola', but m1 has 'mrpc'; all members need the same",
        ),
        (
            {"ensemble": ("m1", "words")},
            "has labels ['no', 'yes'], but m1 has ['0', '1']; all members need",
        ),
        ({"ensemble": ("m1",), "do_train": True}, "pass folders without --do_train"),
        ({"ensemble": ()}, "or no value with --do_train and --num_runs"),
        ({"ensemble_search": 2}, "--ensemble_search: requires --ensemble"),
    ],
)
def test_what_cannot_be_an_ensemble_is_refused(
    flags, message, run, tmp_path, root, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    numbers, words = ["0", "1"], ["no", "yes"]
    members = {"m1": ("mrpc", numbers), "other": ("cola", numbers)}
    members["words"] = ("mrpc", words)
    for name, (task, labels) in members.items():
        (tmp_path / name).mkdir()
        description = {"kind": "classification", "task": task, "labels": labels}
        (tmp_path / name / "task.json").write_text(json.dumps(description))
    assert message in refusal(run, "refused", **{"do_eval": True, **flags})
    assert not (root / "refused").exists()


def test_raw_texts_get_the_mean_of_members_of_other_lengths(run, root, tmp_path):
    for number, length in ((1, 40), (2, 12)):
        lengths = {"max_seq_length": length, "max_qa_length": 7}
        run(f"race{number}", "race", **TRAIN, **lengths)
    texts = ["a list of files " * count for count in (1, 9, 2, 8)]
    counts = (2, 4, 4, 2)
    questions = [
        {"article": text, "question": "is", "options": [*"abcd"][:count]}
        for text, count in zip(texts, counts, strict=True)
    ]
    folders = [f"{root}/race{number}" for number in (1, 2)]
    options = PipelineSettings(batch_size=2)
    each = [list(predict.load(folder, options)(questions)) for folder in folders]
    answers = list(predict.load_ensemble([f"{root}/race?"], options)(questions))
    for row, answer in enumerate(answers):
        mean = np.mean([answers[row]["probabilities"] for answers in each], axis=0)
        np.testing.assert_allclose(answer["probabilities"], mean, atol=1e-6)
        assert len(answer["probabilities"]) == counts[row]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, questions)))
    files = {"input_file": f"{tmp_path}/x.jsonl", "output_file": f"{tmp_path}/y.jsonl"}
    predict.write_answers(PredictSettings(model=",".join(folders), **files), options)
    lines = (tmp_path / "y.jsonl").read_text().splitlines()
    for written, answer in zip(map(json.loads, lines), answers, strict=True):
        assert written["probabilities"] == pytest.approx(answer["probabilities"])
    assert refusal(predict.load_ensemble, [*folders, "nowhere"]) == (
        "--model: no fine-tuned model in 'nowhere'"
    )
