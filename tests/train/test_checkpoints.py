import types

from albert_tf.train.checkpoints import Checkpoints


def test_metrics_of_a_best_checkpoint_without_its_index_are_not_taken(tmp_path):
    for suffix in (".index", ".data-00000-of-00001"):
        (tmp_path / f"model.ckpt-3{suffix}").touch()
    model = types.SimpleNamespace(non_trainable_variables=[])
    checkpoints = Checkpoints(tmp_path, model, None, keep=1)
    checkpoints.mark_best(3, {"step": 3})
    assert checkpoints.best == {"step": 3}
    (tmp_path / "model.ckpt-best.index").unlink()  # killed in `mark_best`
    assert checkpoints.best == {}
