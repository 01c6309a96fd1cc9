"""What a path of weights means: which checkpoint, config, vocabulary and task."""

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
    from albert_tf.weights.source import Source


class ModelFolder:
    """Weights and the files beside them, each opened when it is first asked for.

    Args:
        path: a file, folder, checkpoint prefix or name, see `weights.load`; None: a
            new model, or that of `output_dir`.
        output_dir: the folder of a run that starts from `path`: its own files count
            before those beside the weights. Where it has a checkpoint, the run needs
            no other, and a name is not downloaded.
        checkpoint: which one of a folder of checkpoints, see `checkpoints.choose`.
        files: the configuration, vocabulary and cleaning, where these are given.

    Attributes:
        folders: where files are looked for, in this order.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        output_dir: str | Path | None = None,
        checkpoint: str = "best",
        files: ModelFileSettings = ModelFileSettings(),
    ):
        if path is not None and released.is_name(path) and _has_checkpoint(output_dir):
            path = None
        self._path = None if path is None else released.resolve(path)
        self._checkpoint = checkpoint
        self._files = files
        self.folders = [] if output_dir is None else [Path(output_dir)]
        if self._path is not None:
            is_folder = self._path.is_dir()
            self.folders.append(self._path if is_folder else self._path.parent)

    @functools.cached_property
    def source(self) -> "Source":
        """The weights themselves.

        Raises:
            InputError: no path is given, or see `open_source`.
        """
        from albert_tf.weights.formats import open_source  # which waits for Keras

        if self._path is None:
            raise InputError("no weights: expected a path")
        return open_source(self._path, self._checkpoint)

    @functools.cached_property
    def task(self) -> Mapping[str, Any]:
        """What the first folder that says it was fine-tuned for; empty if none does.

        The keys are those of `task.json`. The heads of SQuAD have names of their own
        in a checkpoint, which need no file.

        Raises:
            InputError: see `metadata.find_task`.
        """
        task = next(filter(None, map(metadata.find_task, self.folders)), {})
        if not task and self._has_own_checkpoint:
            from albert_tf.weights.loading import span_task

            with contextlib.suppress(InputError):  # raised where weights are needed
                return span_task(self.source)
        return task

    @property
    def _has_own_checkpoint(self) -> bool:
        return self._path is not None and any(self.folders[-1].glob("*.index"))

    @functools.cached_property
    def config(self) -> AlbertConfig:
        """The model: the named file's, else the folders', else that of the weights.

        Raises:
            InputError: there is none, or it is damaged.
        """
        config = self._config()
        if self._has_own_checkpoint:
            with contextlib.suppress(InputError):  # which reading them will raise
                return self.source.adapt(config)
        return config

    def _config(self) -> AlbertConfig:
        if self._files.albert_config_file:
            return AlbertConfig.find(self._files.albert_config_file)
        # A .keras file has its own, and may lie beside any other model.
        own = self._path is not None and self._path.suffix == ".keras"
        for folder in self.folders[:-1] if own else self.folders:
            for path in (folder / metadata.CONFIG, folder / "assets" / metadata.CONFIG):
                if path.is_file():
                    return AlbertConfig.from_json_file(path)
        if self._path is None:
            raise InputError(
                f"--albert_config_file: expected, as --output_dir={self.folders[0]} "
                f"holds no model (no {metadata.CONFIG}) and no --init_checkpoint is "
                f"given"
            )
        source = self.source
        try:
            return source.config()
        except InputError as mistake:
            raise InputError(
                f"{mistake}; name the configuration with --albert_config_file"
            ) from None

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The vocabulary, which has the size of `config`'s.

        Raises:
            InputError: there is none, see `find_tokenizer`.
        """
        tokenizer = self.find_tokenizer()
        if tokenizer is None:
            raise InputError(
                f"no vocabulary in {', '.join(map(str, self.folders))}: expected "
                f"--spm_model_file or --vocab_file"
            )
        return tokenizer

    def find_tokenizer(self) -> Tokenizer | None:
        """Opens the named vocabulary, or that of the first folder that has one.

        Text is cleaned as given; else as the first folder says that names a
        vocabulary; else as the vocabulary itself, or the files of transformers beside
        it, say; else as released.

        Returns:
            None where none is named and no folder has one.

        Raises:
            InputError: a folder has several vocabularies, one is damaged, it is not the
                one that the folder names, or not of the size of `config`'s.
        """
        spm, vocab = self._files.vocabularies
        if not (spm or vocab):
            path = next(filter(None, map(_vocabulary_in, self.folders)), None)
            if path is None:
                return None
            spm = str(path)
            if path.suffix == ".txt":
                spm, vocab = None, str(path)
        path, note = next(filter(None, map(metadata.find, self.folders)), (None, {}))
        keys = ("do_lower_case", "keep_accents")
        given = [getattr(self._files, key) for key in keys]
        cleaning = [
            note.get(key) if value is None else value
            for key, value in zip(keys, given, strict=True)
        ]
        tokenizer = tokenization.load(spm, vocab, *cleaning)
        self._check_is_noted(tokenizer, path, note)
        self.config.check_vocabulary(tokenizer.path, tokenizer.vocab_size)
        return tokenizer

    def _check_is_noted(self, tokenizer: Tokenizer, path: Path | None, note) -> None:
        noted = tokenization.fingerprint(
            tokenizer.contents,
            note.get("do_lower_case", tokenizer.do_lower_case),
            note.get("keep_accents", tokenizer.keep_accents),
        )
        if note.get("fingerprint", noted) != noted:
            raise InputError(
                f"{tokenizer.path}: {tokenizer.vocab_size} pieces, and not the "
                f"vocabulary that {path} names; expected "
                f"{note.get('vocabulary') or 'that one'}"
            )


def _has_checkpoint(folder: str | Path | None) -> bool:
    return folder is not None and any(Path(folder).glob("model.ckpt-*.index"))


def _vocabulary_in(folder: Path) -> Path | None:
    """Returns the vocabulary that a folder names, or else its only one."""
    if named := metadata.find(folder):
        path, note = named
        # Where it is gone, another one may have been put there by hand.
        vocabulary = path.parent / note.get("vocabulary", "")
        if os.path.isfile(vocabulary):  # False also for what can be no name
            return vocabulary
    paths = [
        path
        for place in (folder, folder / "assets", folder / "assets/tokenizer")
        for pattern in ("*.model", "*.spm", "vocab*.txt")
        for path in sorted(place.glob(pattern))
    ]
    if len(paths) > 1:
        raise InputError(
            f"{folder}: {len(paths)} vocabularies "
            f"({', '.join(path.name for path in paths)}); expected "
            f"--spm_model_file or --vocab_file"
        )
    whole = folder / hf_files.TOKENIZER
    return paths[0] if paths else whole if hf_files.read(whole) else None
