import io
import json
import types

from albert_tf.train.report import Reporter


class Complaining:
    shown = ()
    key_metric = "accuracy"

    def complaint(self, figures):
        return f"only {figures['accuracy']}"


def test_nobody_complains_of_a_model_that_still_warms_up(tmp_path):
    def said(step, **changes):
        settings = {"do_train": True, "num_warmup_steps": 7, "start_warmup_step": 2}
        config = types.SimpleNamespace(**settings | changes, notes_best=True)
        log = io.StringIO()
        Reporter(tmp_path, log, Complaining(), config).evaluated(
            step, {"accuracy": 0.5}, False, 0.5
        )
        return "Warning: only 0.5\n" in log.getvalue()

    assert not said(8)
    assert said(9)
    assert said(0, do_train=False)


def test_a_line_of_training_has_the_number_of_its_steps(tmp_path):
    figures = {"loss": 1.0, "learning_rate": 0.1, "gradient_norm": 2.0}
    figures |= dict.fromkeys(
        ("sequences_per_second", "tokens_per_second", "waiting_share"), 0.5
    )
    task = types.SimpleNamespace(shown=(), chance_losses={})
    config = types.SimpleNamespace(
        num_train_steps=99, start_warmup_step=0, num_warmup_steps=0
    )
    for steps in ((1, 20, 40), (31, 40)):  # and a resumed run
        reporter = Reporter(tmp_path, io.StringIO(), task, config)
        for step in steps:
            reporter.trained(step, figures)
    entries = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    found = [(entry["step"], entry["steps"]) for entry in entries]
    assert found == [(1, 1), (20, 19), (40, 20), (31, 1), (40, 9)]
