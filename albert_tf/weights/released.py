"""Downloads weights that have a name: released ones, and `hf://owner/name`."""

from pathlib import Path

from albert_tf import errors
from albert_tf.data import download
from albert_tf.errors import InputError
from albert_tf.model.config import PUBLISHED

# https://github.com/google-research/albert lists these addresses.
_ADDRESS = "https://storage.googleapis.com/albert_models/{}.tar.gz"
# The files to download from the Hugging Face Hub.
_MODEL_FILES = ("*.safetensors", "*.json", "spiece.model", "vocab.txt")


def is_name(path: str | Path) -> bool:
    """Whether a text is a name of weights to download, and not an existing path."""
    text = str(path)
    exists = Path(text).exists() or Path(f"{text}.index").exists()
    # The argument may be Path("hf://owner/name"), which has lost one slash.
    return not exists and (text in PUBLISHED or text.startswith("hf:/"))


def resolve(path: str | Path) -> Path:
    """Returns the path of weights, and first downloads weights that have a name.

    Args:
        path: one of these: a path, which is returned unchanged; a released name such as
            "albert_base_v2", whose archive is downloaded into `download.home()`; or
            "hf://owner/name" or "hf://owner/name@revision" of the Hugging Face Hub.
            From the Hub, the safetensors, the configuration and the vocabulary are
            downloaded into the cache of `huggingface_hub`.

    Raises:
        InputError: the download fails, or the archive is damaged.
    """
    if not is_name(path):
        return Path(path)
    name = str(path)
    if name not in PUBLISHED:
        return _download_from_hub(name)

    def find_model(root: Path) -> Path:
        """Returns the only folder of a model in an unpacked archive."""
        with errors.wrap_read(name, "an archive with one albert_config.json"):
            [folder] = {path.parent for path in root.rglob("albert_config.json")}
        return folder

    # The value None means no check: no checksum is published.
    return download.make_folder(
        download.home() / "weights" / name, {_ADDRESS.format(name): None}, find_model
    )


def _download_from_hub(name: str) -> Path:
    """Downloads "hf://owner/name" or "hf://owner/name@revision"; returns the folder."""
    repository, _, revision = name.removeprefix("hf:").lstrip("/").partition("@")
    errors.check_installed(name, "huggingface_hub", extra="hub")
    import huggingface_hub

    with errors.wrap_read(name, "hf://owner/name of a model, and a connection"):
        folder = huggingface_hub.snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=list(_MODEL_FILES),
            ignore_patterns=["*/*"],  # files in subfolders
        )
    if not list(Path(folder).glob("*.safetensors")):
        raise InputError(f"{name}: has no .safetensors; no other format is downloaded")
    return Path(folder)
