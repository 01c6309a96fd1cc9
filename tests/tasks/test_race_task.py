import itertools
import json

import numpy as np
import pytest

from albert_tf import AlbertConfig
from albert_tf.tasks.base import Split
from albert_tf.tasks.race import features, reading
from albert_tf.tasks.race import task as race
from albert_tf.tasks.race.reading import Question
from albert_tf.tasks.settings.race import RaceSettings

LENGTHS = {"max_seq_length": 40, "max_qa_length": 12}


@pytest.fixture
def split(make):
    """Makes a split of questions with these answers and levels."""

    def of(answers, levels=("",), options=("list", "file", "string"), name="dev"):
        questions = [
            Question(
                f"q{n}", "object " * (n % 3), "an _", options, answer, level, f"f:{n}"
            )
            for n, (answer, level) in enumerate(zip(answers, itertools.cycle(levels)))
        ]
        return make().encode_split(Split(name, questions))

    return of


@pytest.fixture
def make(tokenizer, tiny):
    def task(**options):
        given = {"task_name": "own", "choices": 3, **LENGTHS, **options}
        config = tiny(vocab_size=1500, max_position_embeddings=48)
        return race.MultipleChoice(RaceSettings(**given), config, tokenizer)

    return task


@pytest.mark.parametrize("name", ["small 64 24", "small 256 128"])
def test_inputs_are_the_released_ones(name, golden, data, tokenizer):
    questions = reading.read_split(data / "race_own", "dev")
    recorded = golden("race_own.json")[name]
    names = ("max_seq_length", "max_qa_length")
    lengths = RaceSettings(**{name: recorded[name] for name in names})
    found = features.encode(tokenizer, questions, lengths)
    *examples, padding = recorded["features"]
    assert not padding["is_real_example"]
    assert len(found) == len(examples) == 6
    rows = [3, 0, 5, 1, 4, 2]
    batch = found.make_batch(rows, 4, lengths.max_seq_length, tokenizer)
    position = np.arange(lengths.max_seq_length)
    for place, row in enumerate(rows):
        assert questions[row].answer == examples[row]["label_id"]
        for choice, wanted in enumerate(examples[row]["choices"]):
            count, ones = wanted["n"], wanted["seg_ones"]
            found_rows = {name: value[place, choice] for name, value in batch.items()}
            assert found_rows["input_ids"][:count].tolist() == wanted["input_ids"]
            assert (found_rows["input_ids"][count:] == 0).all()
            mask = position < count
            assert (found_rows["input_mask"] == mask).all()
            assert (
                found_rows["segment_ids"] == (mask & (position >= count - ones))
            ).all()
    longest = [max(c["n"] for c in example["choices"]) for example in examples]
    assert found.lengths.tolist() == longest


def test_logits_loss_and_probabilities_are_the_released_ones(
    golden, write_checkpoint, arrays, tokenizer
):
    recorded = golden("heads_race")
    small = AlbertConfig(**golden("model_small.config.json"))
    settings = RaceSettings(max_seq_length=24, max_qa_length=8, choices=4)
    made = race.MultipleChoice(settings, small, tokenizer)
    model = made.build_model()
    made.load(model, write_checkpoint(recorded), strict=True)
    batch = {
        name: recorded[f"in/{name}"].reshape(3, 4, 24)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    batch["labels"] = recorded["in/label_ids"]
    outputs = model(batch)
    assert np.abs(arrays(outputs["logits"]) - recorded["out/logits"]).max() < 2e-5
    kept = arrays(made.prediction_outputs(outputs, batch)["outputs"])
    assert np.abs(kept - recorded["out/probabilities"]).max() < 2e-5
    sums, weights = made.loss_sums(outputs, batch), made.loss_weights(batch)
    assert abs(float(made.compute_loss(sums, weights)) - recorded["out/loss"]) < 2e-5
    batch["example_weight"] = np.array([1, 0, 1], "float32")
    sums, weights = made.loss_sums(outputs, batch), made.loss_weights(batch)
    each = recorded["out/per_example_loss"]
    found = float(made.compute_loss(sums, weights))
    assert found == pytest.approx((each[0] + each[2]) / 2, rel=1e-5)


def test_accuracies_of_all_and_of_each_level(make, split):
    probabilities = np.array([[0.6, 0.4, 0.0]] * 6)
    levels = ("middle", "middle", "high", "high", "high", "high")
    found = split([0, 1, 0, 0, 0, None], levels)
    assert make().compute_metrics(found, probabilities) == {
        "eval_accuracy": 0.8,
        "middle_accuracy": 0.5,
        "high_accuracy": 1.0,
    }
    # The first questions, if an evaluation ends before.
    assert make().compute_metrics(found, probabilities[:2]) == {
        "eval_accuracy": 0.5,
        "middle_accuracy": 0.5,
    }
    assert make().compute_metrics(split([None]), probabilities[:1]) == {}
    lines = (
        make()
        .prediction_files(found, probabilities)["predict_results.txt"]
        .splitlines()
    )
    scores = dict(line.split(" = ") for line in lines)
    loss = -(4 * np.log(0.6) + np.log(0.4)) / 5
    assert float(scores.pop("eval_loss")) == pytest.approx(loss)
    assert scores == {
        **{"questions": "6", "answered": "5", "eval_accuracy": "0.8"},
        **{"middle_accuracy": "0.5", "high_accuracy": "1.0"},
    }


def test_batches_have_the_answers_of_their_questions(make, split, tokenizer):
    answers = [2, 0, 1, 1, 0]
    found = split(answers)
    batch = (
        make().dataset([found], with_labels=True).make_batch(np.array([4, 2, 0]), 16)
    )
    assert batch["labels"].tolist() == [0, 1, 2]
    assert batch["input_ids"].shape == (3, 3, 16)
    wanted = tokenizer.encode("an string")
    ids = batch["input_ids"][0, 2].tolist()
    assert ids[3 : 3 + len(wanted)] == wanted  # after [CLS] object [SEP]
    assert "labels" not in make().dataset([found], with_labels=False).make_batch(
        [1], 16
    )


def test_a_question_without_answer_cannot_be_learned(make, split, refuses):
    for part in ("train", "dev"):
        with refuses("f:1: no answer; training and evaluation need one"):
            make().set_splits({part: [split([0, None])]})


def test_what_is_cut_is_logged(make):
    articles = ("list " * 30, "list " * 30, "object")
    options = (("list", "list list"), ("list", "list"), ("list", "list " * 9))
    questions = [
        Question("", article, "file", choices, 0, "", "")
        for article, choices in zip(articles, options, strict=True)
    ]
    made = make(max_seq_length=32, max_qa_length=5)
    assert made.summary(made.encode_split(Split("dev", questions))) == [
        "dev: 3 sequences, 24.3 tokens on average, 32 at most",
        "  2 questions with a truncated article (--max_seq_length=32)",
        "  1 choices truncated at their beginning (--max_qa_length=5)",
    ]


def test_losses_and_answers_leave_out_choices_that_are_not_there(make, split):
    made = make(choices=4)
    questions = split([1, 0], options=("list", "file")).examples + split([2]).examples
    both = made.encode_split(Split("dev", questions))
    model, source = made.build_model(), made.dataset([both], with_labels=True)
    batch = source.make_batch(np.arange(3), 40)
    assert batch["input_ids"].shape == (3, 4, 40)
    outputs = model(batch)
    kept = np.array(made.prediction_outputs(outputs, batch)["outputs"])
    assert (kept[:2, 2:] == 0).all() and (kept[2, 3:] == 0).all()
    sums, weights = made.loss_sums(outputs, batch), made.loss_weights(batch)
    shares = kept[np.arange(3), [1, 0, 2]]
    expected = pytest.approx(-np.log(shares).mean(), rel=1e-5)
    assert float(made.compute_loss(sums, weights)) == expected
    lines = made.prediction_files(both, kept)["predictions.jsonl"].splitlines()
    assert [len(json.loads(line)["probabilities"]) for line in lines] == [2, 2, 3]


def test_lengths_leave_room_for_an_article(refuses):
    with refuses(
        "--max_seq_length=27: must be at least 28, which is --max_qa_length=24 "
        "plus 4 other tokens"
    ):
        RaceSettings(max_seq_length=27, max_qa_length=24)
