"""Lists the checkpoints of a folder, and chooses the best or the newest."""

import logging
import re
from pathlib import Path

from albert_tf.data import files
from albert_tf.errors import InputError

BEST = "model.ckpt-best"
_log = logging.getLogger(__name__)


def list_steps(folder: Path) -> list[int]:
    """Lists the steps of a folder's checkpoints in ascending order."""
    names = (path.name for path in folder.glob("model.ckpt-*.index"))
    matches = (re.fullmatch(r"model\.ckpt-(\d+)\.index", name) for name in names)
    return sorted(int(match[1]) for match in matches if match)


def choose(folder: Path, checkpoint: str) -> Path:
    """Chooses a TF1 checkpoint of a folder, logs its name and returns its prefix.

    Args:
        folder: the folder of a run or of a released checkpoint.
        checkpoint: "best" for `model.ckpt-best`, or for the newest checkpoint if there
            is no best one. "newest" for the checkpoint that TensorFlow's file
            `checkpoint` names, or for the only checkpoint if there is no such file.

    Raises:
        InputError: there is no checkpoint; the file `checkpoint` names a missing one;
            or there are several checkpoints, and no file says which is the newest.
    """
    names = sorted(path.stem for path in folder.glob("*.index"))
    newest = names[0] if len(names) == 1 else None
    if (folder / "checkpoint").exists():
        text = files.read_text(folder / "checkpoint")
        match = re.search(r'^model_checkpoint_path: "(.*)"', text, re.MULTILINE)
        # The folder may have moved, so only the last part of the path counts.
        newest = Path(match[1]).name if match else newest
    chosen = BEST if checkpoint == "best" and BEST in names else newest
    if chosen not in names:
        # `open_source` calls this for folders in which it found no other format. So the
        # message names all formats.
        expected = "one set of weights (TF checkpoint, SavedModel, .safetensors or "
        expected += "model.weights.h5; a pickle can run code and is not read)"
        if chosen is not None:
            expected = f"{chosen!r}, which its file `checkpoint` names"
        actual = ", ".join(names) or "none"
        raise InputError(f"{folder}: expected {expected}; found {actual}")
    kind = "best" if chosen == BEST else "newest"
    _log.info("%s: reading its %s checkpoint, %s", folder, kind, chosen)
    return folder / chosen
