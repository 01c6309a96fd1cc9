import pytest

from albert_tf import trainer


def told(monkeypatch, seconds):
    """What a run over 10 examples in batches of 4 says, of so many seconds each."""
    clock, lines = iter([0.0, *seconds]), []
    monkeypatch.setattr(trainer.time, "perf_counter", lambda: next(clock))
    made = trainer.Trainer(None, Config, None, None, None, say=lines.append)
    assert list(made._told("abc", "evaluated", 4, 10)) == ["a", "b", "c"]
    return lines


class Config:
    xla = False


def test_a_long_evaluation_says_how_far_it_is_and_a_short_one_nothing(monkeypatch):
    assert told(monkeypatch, [0.2, 0.5, 0.9]) == []
    assert told(monkeypatch, [5, 16, 20]) == [
        "evaluated 8 of 10 examples, 0.5 a second",
        "evaluated 10 of 10 examples, 0.5 a second",
    ]


class Strategy:
    """Gives back what one worker reads."""

    def __init__(self, num_replicas_in_sync):
        self.num_replicas_in_sync = num_replicas_in_sync

    def distribute_datasets_from_function(self, read):
        return read("a worker's")


@pytest.mark.parametrize(("replicas", "pipelines"), [(1, 1), (2, "a worker's")])
def test_one_device_reads_for_itself(replicas, pipelines):
    def read(context):
        seen.append(getattr(context, "num_input_pipelines", context))
        return "batches"

    seen = []
    made = trainer.Trainer(None, Config, Strategy(replicas), None, None)
    assert made._read(read) == "batches"
    assert seen == [pipelines]
