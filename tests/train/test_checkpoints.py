import shutil
import types

import pytest

from albert_tf.train.checkpoints import Checkpoints


@pytest.fixture
def checkpoints(tmp_path):
    for step in (3, 4):
        for suffix in (".index", ".data-00000-of-00001"):
            (tmp_path / f"model.ckpt-{step}{suffix}").write_text(f"{step}{suffix}")
    model = types.SimpleNamespace(non_trainable_variables=[])
    return Checkpoints(tmp_path, model, None, keep=1)


def best(folder):
    return {path.name: path.read_text() for path in folder.glob("model.ckpt-best*")}


def test_a_full_disk_keeps_the_best_checkpoint(
    checkpoints, tmp_path, monkeypatch, refuses
):
    def full(source, target):
        if str(source).endswith(".index"):
            raise OSError(28, "No space left on device")
        return copyfile(source, target)

    copyfile = shutil.copyfile
    checkpoints.mark_best(3, {"step": 3})
    before = best(tmp_path)
    assert before["model.ckpt-best.index"] == "3.index" and len(before) == 3
    monkeypatch.setattr(shutil, "copyfile", full)
    with refuses(
        f"{tmp_path}/model.ckpt-best: cannot be written: No space left on device"
    ):
        checkpoints.mark_best(4, {"step": 4})
    assert best(tmp_path) == before
    assert not list(tmp_path.glob("*.tmp-*"))


def test_metrics_of_a_best_checkpoint_without_its_index_are_not_taken(
    checkpoints, tmp_path
):
    checkpoints.mark_best(3, {"step": 3})
    assert checkpoints.best == {"step": 3}
    (tmp_path / "model.ckpt-best.index").unlink()  # killed in `mark_best`
    assert checkpoints.best == {}
