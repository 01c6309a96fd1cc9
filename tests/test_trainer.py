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
