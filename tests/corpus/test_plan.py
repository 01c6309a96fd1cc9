from collections import Counter

import pytest

from albert_tf.corpus import plan
from albert_tf.corpus.config import CorpusSettings
from albert_tf.errors import InputError


def make(groups, duplicates, files, seed=3):
    found = [plan.Group("train", 0, i, 1, plan.UNIT_TOKENS // 8) for i in range(groups)]
    return plan.Plan("train", found, duplicates, files, random_seed=seed)


@pytest.mark.parametrize(
    ("groups", "duplicates", "files"),
    [(1, 1, 1), (7, 3, 1), (50, 4, 3), (3, 2, 5), (1, 1, 70), (90, 5, 4)],
)
def test_units_use_every_group_equally_and_fill_every_file(groups, duplicates, files):
    found = make(groups, duplicates, files)
    units = list(found.units())
    assert [unit.number for unit in units] == list(range(found.unit_count))
    uses = Counter(number for unit in units for number, _ in unit.groups)
    assert uses == dict.fromkeys(range(groups), duplicates)
    written = {(unit.number, file) for unit in units for file in unit.files}
    assert written == {(u, f) for f in range(files) for u in found.units_of(f)}
    assert {file for _, file in written} == set(range(files))


def test_a_unit_stays_small_however_much_there_is():
    for groups, duplicates in ((50, 4), (400, 40)):
        units = list(make(groups, duplicates, 2).units())
        assert max(len(unit.groups) for unit in units) <= 9
        assert len(units) % 2 == 0


def test_units_mix_distant_groups_and_duplicates():
    units = list(make(800, 3, 1).units())
    for unit in units:
        numbers = [number for number, _ in unit.groups]
        assert max(numbers) - min(numbers) > 200
        assert numbers != sorted(numbers)
    assert units != list(make(800, 3, 1, seed=4).units())


def test_no_two_units_draw_alike():
    units = [*make(50, 4, 3).units()]
    seeds = {unit.seed for unit in units}
    seeds |= {unit._replace(subset="eval").seed for unit in units}
    assert len(seeds) == 2 * len(units)


def test_held_out_documents_are_used_once():
    config = CorpusSettings(input_file=("x",), output_file=("y@3",), vocab_file="v")
    groups = [plan.Group("eval", 2, 0, 1, 9), plan.Group("train", 1, 0, 1, 9)]
    found = {p.subset: (p.duplicates, p.files) for p in plan.make(groups, config)}
    assert found == {"eval": (1, 1), "train": (40, 3)}


@pytest.mark.parametrize(
    "changes", [{"objective": "nsp"}, {"released_behaviour": True}]
)
def test_one_held_out_document_is_too_few_where_b_comes_from_another(changes):
    values = {"input_file": ("x",), "output_file": ("y",), "vocab_file": "v"}
    config = CorpusSettings(**values, eval_fraction=0.1, **changes)
    with pytest.raises(InputError) as error:
        plan.check_input(Counter(train_documents=8, eval_documents=1), config)
    assert str(error.value) == (
        "--eval_fraction=0.1: one document of 9 is held out, and the second segment "
        "must come from another; expected a larger share, or 0"
    )
    for enough in (0, 2):
        read = Counter(train_documents=8, eval_documents=enough)
        plan.check_input(read, config)
    ordinary = CorpusSettings(**values, eval_fraction=0.1)
    plan.check_input(Counter(train_documents=8, eval_documents=1), ordinary)


def test_more_than_one_percent_of_unknown_tokens_is_a_warning():
    config = CorpusSettings(input_file=("x",), output_file=("y",), vocab_file="v")
    read = Counter(train_documents=8, train_tokens=1000, train_unknown_tokens=357)
    assert plan.check_input(read, config) == [
        "35.7% of the tokens are unknown: the vocabulary is not made for this text"
    ]
    assert plan.check_input(Counter(read, train_unknown_tokens=-347), config) == []
