import io
import types

from albert_tf.reporting import Reporter


class Complaining:
    shown = ()
    key_metric = "accuracy"

    def complaint(self, figures):
        return f"only {figures['accuracy']}"


def test_nobody_complains_of_a_model_that_still_warms_up(tmp_path):
    def said(step, **changes):
        settings = {"do_train": True, "num_warmup_steps": 7, "start_warmup_step": 2}
        config = types.SimpleNamespace(**settings | changes, evaluates_best=True)
        log = io.StringIO()
        Reporter(tmp_path, log, Complaining(), config).evaluated(
            step, {"accuracy": 0.5}, False, 0.5
        )
        return "Warning: only 0.5\n" in log.getvalue()

    assert not said(8)
    assert said(9)
    assert said(0, do_train=False)
