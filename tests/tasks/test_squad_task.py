import numpy as np
import pytest
from keras import ops

from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks.base import Split
from albert_tf.tasks.settings.squad import SquadRunSettings, SquadSettings
from albert_tf.tasks.squad import answers, features
from albert_tf.tasks.squad.task import QuestionAnswering

# The largest difference that counts as the same number in float32.
BOUND = 2e-5
LENGTHS = {"max_seq_length": 13, "doc_stride": 3, "max_query_length": 2}
WINDOWS = SquadSettings(**LENGTHS)


def answer(task, windows, predictions):
    return answers.collect_answers(windows, predictions, task.settings)


def task_of(
    config, pieces, version="2.0", head="conditional", evaluation=None, **changes
):
    given = {**LENGTHS, "version": version, "head": head, **changes}
    settings = SquadSettings(**given).with_defaults(
        None, config.max_position_embeddings
    )
    task = QuestionAnswering(settings, config, pieces)
    task.set_splits({"dev": [split_of(evaluation)]} if evaluation else {})
    return task


def split_of(windows):
    return Split("predict", windows.dataset, windows)


def losses(task, model, batch):
    sums = task.loss_sums(model(batch), batch)
    return sums, task.compute_loss(sums, task.loss_weights(batch))


V2_LOSSES = {"start_loss": "start_loss", "end_loss": "end_loss"}
V2_LOSSES["answerable_loss"] = "regression_loss"


@pytest.mark.parametrize(
    ("section", "args", "names"),
    [("v1", ("1.1", "linear"), {}), ("v2_train", ("2.0", "conditional"), V2_LOSSES)],
)
def test_losses_are_the_released_ones(
    section, args, names, golden, data, pieces, write_checkpoint
):
    recorded = golden("heads_squad")
    config = AlbertConfig.from_json_file(data / "model_small.config.json")
    task = task_of(config, pieces, *args)
    model = task.build_model()
    task.load(model, write_checkpoint(recorded, f"{section}/"), strict=True)
    batch = {
        name.removeprefix("in/"): value
        for name, value in recorded.items()
        if name.startswith("in/") and name != "in/unique_ids"
    }
    if section == "v1":
        batch = {n: v for n, v in batch.items() if n not in ("p_mask", "is_impossible")}
    sums, loss = losses(task, model, batch)
    total = "loss" if section == "v1" else "total_loss"
    assert abs(float(loss) - recorded[f"{section}/out/{total}"]) <= BOUND
    for ours, theirs in names.items():
        assert float(sums[ours]) / 4 == pytest.approx(
            recorded[f"{section}/out/{theirs}"], abs=BOUND
        )
    # A batch in two uneven parts: sums of all over weights of all.
    parts = [{n: v[rows] for n, v in batch.items()} for rows in ([0], [1, 2, 3])]
    each = [task.loss_sums(model(part), part) for part in parts]
    whole = {name: sum(float(part[name]) for part in each) for name in sums}
    assert float(task.compute_loss(whole, dict.fromkeys(whole, 4.0))) == pytest.approx(
        float(loss), abs=BOUND
    )
    kept = task.prediction_outputs(
        model({n: v for n, v in batch.items() if "positions" not in n}), batch
    )
    for name, value in kept.items():
        expected = recorded[f"{'v1' if section == 'v1' else 'v2_predict'}/out/{name}"]
        assert np.abs(ops.convert_to_numpy(value) - expected).max() <= BOUND, name


PARAGRAPHS = (
    ("a b c d e f g h a c e g", ("who ran?", "d e"), ("who", "g h")),
    ("b a", ("ran", "a"), ("who ran", None)),
    ("", ("who", None)),
)


@pytest.mark.parametrize("head", ["linear", "conditional"])
def test_answers_do_not_depend_on_padding(head, dataset, pieces, tiny):
    windows = features.make_windows(dataset(*PARAGRAPHS), pieces, WINDOWS)
    task = task_of(tiny(num_hidden_layers=1), pieces, "2.0", head)
    model = task.build_model()

    def found(length):
        every = []
        for place, count in enumerate(windows.lengths):
            batch = task.dataset([split_of(windows)], with_labels=False).make_batch(
                np.array([place]), length or int(count)
            )
            kept = task.prediction_outputs(model(batch), batch)
            every.append({n: ops.convert_to_numpy(v)[0] for n, v in kept.items()})
        return answer(task, windows, every)

    short, long = found(0), found(17)
    assert list(short.texts) == ["q00", "q01", "q10", "q11", "q20"]
    assert (short.texts, short.n_best.keys()) == (long.texts, long.n_best.keys())
    for id, entries in short.n_best.items():
        assert list(entries) == list(long.n_best[id])
        for ours, theirs in zip(
            entries.values(), long.n_best[id].values(), strict=True
        ):
            assert ours == pytest.approx(theirs, abs=BOUND)
    assert short.null_odds == pytest.approx(long.null_odds, abs=BOUND)
    spans = {
        id: min(begin for _, begin, _ in each) for id, each in short.n_best.items()
    }
    assert [id for id, begin in spans.items() if begin < 0] == ["q20"]


def test_more_candidates_than_positions_are_padded(dataset, pieces, tiny):
    windows = features.make_windows(dataset(("", ("", None))), pieces, WINDOWS)
    config = tiny(num_hidden_layers=1)
    task = task_of(config, pieces, start_n_top=6, end_n_top=4)
    batch = task.dataset([split_of(windows)], with_labels=False).make_batch(
        np.array([0]), 3
    )
    assert batch["input_ids"].shape == (1, 6)
    kept = task.prediction_outputs(task.build_model()(batch), batch)
    assert kept["end_top_index"].shape == (1, 24)


def logits(*rows):
    """One window's, of [CLS] who [SEP] and the context."""
    return {
        name: np.float32(row)
        for name, row in zip(("start_logits", "end_logits"), rows, strict=True)
    }


def test_null_odds_of_the_linear_head_worked_by_hand(dataset, pieces, tiny):
    data = dataset(("a b c d e f g h a c e", ("who", "b")))
    windows = features.make_windows(data, pieces, WINDOWS)
    assert len(windows) == 2
    first = logits([2, 9, 9, 3, *[0] * 9, 50], [1, 9, 9, 0, 4, *[0] * 8, 50])
    second = logits([0.5, *[0] * 12], [1.25, *[0] * 12])
    # Of few candidates, as padding would take their places.
    task = task_of(tiny(), pieces, "2.0", "linear", n_best_size=3)
    found = answer(task, windows, [first, second])
    # "a b", 3 + 4, against the lesser of 2 + 1 and 0.5 + 1.25.
    assert (found.texts, found.null_odds) == ({"q00": "a b"}, {"q00": 1.75 - 7.0})
    task = task_of(tiny(), pieces, "1.1", "linear", n_best_size=3)
    assert answer(task, windows, [first, second]).null_odds == {}


def test_a_question_counts_when_all_its_windows_were_seen(dataset, pieces, tiny):
    data = dataset(*PARAGRAPHS)
    windows = features.make_windows(data, pieces, WINDOWS)
    task = task_of(tiny(), pieces, "2.0", "linear", evaluation=windows)
    # An epoch has all windows, unlike in the release.
    assert len(task.evaluation) == len(windows) > len(windows.questions)
    seen = int(windows.bounds[2]) - 1
    rows = [logits(np.zeros(13), np.zeros(13)) for _ in range(seen)]
    assert list(answer(task, windows, rows).texts) == ["q00"]
    assert task.evaluate_predictions(iter(rows), {})["total"] == 1
    with pytest.raises(InputError, match="no question was answered from all its w"):
        task.evaluate_predictions(iter(rows[:1]), {})


@pytest.mark.parametrize("fits", [False, True])
def test_an_evaluation_fits_the_threshold_if_asked(fits, dataset, pieces, tiny):
    data = dataset(("a b", ("who", "b"), ("ran", None)))
    windows = features.make_windows(data, pieces, WINDOWS)
    given = {"threshold": -7.0, "fit_threshold": fits}
    task = task_of(tiny(), pieces, "2.0", "linear", windows, **given)
    # [CLS] who [SEP] a b [SEP]: null odds of 2 - 8 and 6 - 8, with -4 between them.
    rows = [logits([null, 0, 0, 0, 4, 0], [null, 0, 0, 0, 4, 0]) for null in (1, 3)]
    metrics = task.evaluate_predictions(iter(rows), {})
    assert metrics["best_f1_thresh"] == -6.0
    assert metrics["null_score_diff_threshold"] == (-4.0 if fits else -7.0)
    assert metrics["f1"] == (100.0 if fits else 50.0)


# The flags of a run, and the splits that it reads.
WORK = [
    (("do_train",), ["train"]),
    (("do_train", "do_eval"), ["train", "dev"]),
    (("do_train", "do_predict"), ["train", "dev", "test"]),
    (("do_eval",), ["test"]),
    (("do_predict",), ["test"]),
    ((), []),
]


@pytest.mark.parametrize(("flags", "expected"), WORK)
def test_questions_are_answered_where_a_flag_asks_for_it(flags, expected, data):
    path, work = str(data / "squad_own.json"), dict.fromkeys(flags, True)
    run = SquadRunSettings(output_dir="run", export_dir="served", **work)
    settings = SquadSettings(train_file=path, predict_file=path)
    _, splits = QuestionAnswering.read_examples(settings, None, run, lambda line: None)
    assert list(splits) == expected


def test_windows_that_the_model_cannot_read_are_refused(pieces, tiny, refuses):
    with refuses(
        "--max_seq_length=13: must be at least 14, the value of --start_n_top or "
        "--end_n_top"
    ):
        task_of(tiny(), pieces, end_n_top=14)
