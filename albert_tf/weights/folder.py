"""Finds the checkpoint, config, vocabulary and task for a path of weights."""

import contextlib
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.text import hf_files, tokenization
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata, released
from albert_tf.weights.settings import ModelFileSettings

if TYPE_CHECKING:
    from albert_tf.weights.names import Source


class ModelFolder:
    """Weights and the files in their folder, each opened on first use.

    Args:
        path: a file, folder, checkpoint prefix or name, see `weights.load`. None if a
            run starts without weights, or resumes from `output_dir`.
        output_dir: the folder of a run that starts from `path`. Its files take
            precedence over the files in the folder of the weights. If `output_dir` has
            a checkpoint, a `path` that is a name is not downloaded.
        checkpoint: the checkpoint to load from a folder of TF1 checkpoints: "best" (or
            the newest if there is none) or "newest".
        files: flags that name the configuration and the vocabulary, and decide how text
            is cleaned.

    Attributes:
        folders: the folders to search, in this order.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        output_dir: str | Path | None = None,
        checkpoint: str = "best",
        files: ModelFileSettings = ModelFileSettings(),
    ):
        self.folders = [] if output_dir is None else [Path(output_dir)]
        # Whether `output_dir` has a checkpoint, from which the run resumes.
        is_resumed = any(any(each.glob("model.ckpt-*.index")) for each in self.folders)
        self._checkpoint = checkpoint
        self._files = files
        self._path = None
        if path is not None and not (is_resumed and released.is_name(path)):
            self._path = released.resolve(path)
            is_folder = self._path.is_dir()
            self.folders.append(self._path if is_folder else self._path.parent)

    @functools.cached_property
    def source(self) -> "Source":
        """The opened weights.

        Raises:
            InputError: there is no path, or the weights cannot be opened.
        """
        from albert_tf.weights.formats import open_source  # imports Keras

        if self._path is None:
            raise InputError("no weights: expected a path")
        return open_source(self._path, self._checkpoint)

    @functools.cached_property
    def task(self) -> Mapping[str, Any]:
        """The task of the first folder that has one, with the keys of `task.json`.

        A TF1 checkpoint with a head of SQuAD needs no `task.json`: its task follows
        from the names of its weights. If there is no task, the result is empty.

        Raises:
            InputError: the metadata in a folder are damaged.
        """
        task = next(filter(None, map(metadata.find_task, self.folders)), {})
        # The last folder is the folder of the weights, if there are weights.
        if not task and any(self.folders[-1].glob("*.index")):
            from albert_tf.weights.loading import find_span_task

            # `source` raises InputError if there is no path or the weights are damaged.
            # Both errors are ignored here. Without a path, there is no task. If the
            # weights are damaged, loading them later raises the same error.
            with contextlib.suppress(InputError):
                return find_span_task(self.source)
        return task

    @functools.cached_property
    def config(self) -> AlbertConfig:
        """The configuration of the model.

        It is the one that --albert_config_file names, a file or a published name.
        Without this flag, it is from the first configuration file in the folders, or
        else from the weights.

        Raises:
            InputError: there is no configuration, or it is damaged.
        """
        if self._files.albert_config_file:
            return AlbertConfig.find(self._files.albert_config_file)
        # A .keras file contains its configuration. So its folder, the last one, is not
        # searched: a configuration in it may belong to another model.
        is_keras = self._path is not None and self._path.suffix == ".keras"
        for folder in self.folders[:-1] if is_keras else self.folders:
            for path in (folder / metadata.CONFIG, folder / "assets" / metadata.CONFIG):
                if path.is_file():
                    return AlbertConfig.from_json_file(path)
        if self._path is None:
            raise InputError(
                f"--albert_config_file: required, as --output_dir={self.folders[0]} "
                f"has no {metadata.CONFIG} and there is no --init_checkpoint"
            )
        source = self.source  # outside of `try`: its errors get no advice on the flag
        try:
            return source.config()
        except InputError as error:
            raise InputError(
                f"{error}; name the configuration with --albert_config_file"
            ) from None

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The result of `find_tokenizer`, for callers that need a vocabulary.

        Raises:
            InputError: there is no vocabulary, or it is not usable.
        """
        tokenizer = self.find_tokenizer()
        if tokenizer is None:
            raise InputError(
                f"no vocabulary in {', '.join(map(str, self.folders))}: expected "
                f"--spm_model_file or --vocab_file"
            )
        return tokenizer

    def find_tokenizer(self) -> Tokenizer | None:
        """Opens the vocabulary of the flags, or of the first folder that has one.

        The settings of cleaning are `do_lower_case` and `keep_accents`. Each is from
        the first of these that has it: the flags; the metadata of the first folder that
        names a vocabulary; the files of transformers in the folder of the vocabulary;
        the vocabulary itself. Without any of these, the setting is as released.

        Returns:
            None if no flag names a vocabulary and no folder has one.

        Raises:
            InputError: a folder has several vocabularies; or the vocabulary is damaged,
                is not the one that the folder names, or does not fit `config`.
        """
        spm, vocab = self._files.vocabularies
        if not (spm or vocab):
            path = next(filter(None, map(_find_vocabulary, self.folders)), None)
            if path is None:
                return None
            is_text = path.suffix == ".txt"
            spm, vocab = (None, str(path)) if is_text else (str(path), None)
        # The first file of metadata that names a vocabulary, and its contents.
        pairs = map(metadata.find_vocabulary, self.folders)
        file, values = next((pair for pair in pairs if pair[1]), (None, {}))
        keys = ("do_lower_case", "keep_accents")
        # A flag that is set has precedence over the metadata.
        flags = {key: getattr(self._files, key) for key in keys}
        cleaning = {k: values.get(k) if v is None else v for k, v in flags.items()}
        tokenizer = tokenization.load(spm, vocab, **cleaning)
        # The saved fingerprint covers the vocabulary and the saved cleaning. Flags may
        # have changed the cleaning of `tokenizer`, so the fingerprint to compare is
        # computed with the saved cleaning.
        saved_cleaning = [values.get(key, getattr(tokenizer, key)) for key in keys]
        fingerprint = tokenization.digest(tokenizer.contents, *saved_cleaning)
        if values.get("fingerprint", fingerprint) != fingerprint:
            raise InputError(
                f"{tokenizer.path}: {tokenizer.vocab_size} pieces, and not the "
                f"vocabulary that {file} names; expected "
                f"{values.get('vocabulary') or 'that one'}"
            )
        self.config.check_vocabulary(tokenizer.path, tokenizer.vocab_size)
        return tokenizer


def _find_vocabulary(folder: Path) -> Path | None:
    """Returns the vocabulary that a folder names, or else its only vocabulary."""
    file, values = metadata.find_vocabulary(folder)
    vocabulary = file.parent / values.get("vocabulary", "")
    # Unlike `Path.is_file`, this raises no error for a name that is too long.
    if os.path.isfile(vocabulary):
        return vocabulary
    # The user may have replaced the vocabulary by a file of another name.
    paths = [
        path
        for root in (folder, folder / "assets", folder / "assets/tokenizer")
        for pattern in ("*.model", "*.spm", "vocab*.txt")
        for path in sorted(root.glob(pattern))
    ]
    if len(paths) > 1:
        raise InputError(
            f"{folder}: {len(paths)} vocabularies "
            f"({', '.join(path.name for path in paths)}); expected "
            f"--spm_model_file or --vocab_file"
        )
    if paths:
        return paths[0]
    tokenizer_file = folder / hf_files.TOKENIZER
    return tokenizer_file if hf_files.read(tokenizer_file) else None
