"""What `run_squad.py` does: SQuAD 1.1, SQuAD 2.0 and what looks alike."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import tensorflow as tf

from albert_tf.data import cores
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.serve import runtimes
from albert_tf.serve.service import Service
from albert_tf.tasks.settings.fine_tuning import ModelSettings
from albert_tf.tasks.settings.squad import SquadSettings
from albert_tf.tasks.squad import answers, conversion, reading
from albert_tf.tasks.squad.answers import Answers, Search
from albert_tf.tasks.squad.features import Lengths, Windows
from albert_tf.tasks.squad.graph import question_answering
from albert_tf.tasks.squad.reading import Dataset
from albert_tf.tasks.squad.task import (
    FITTED_ON,
    KIND,
    QuestionAnswering,
    Settings,
    digest,
    evaluate,
    search_threshold,
)
from albert_tf.text.tokenization import Tokenizer
from albert_tf.train import (
    finetune,
    loop,
    report,
)
from albert_tf.train.checkpoints import steps_made
from albert_tf.train.devices import DistributionSettings, is_chief
from albert_tf.train.loop import Outcome

# As released, where neither a flag nor the model's folder says otherwise.
_THRESHOLD = 0.0
_LENGTHS = ("max_seq_length", "doc_stride", "max_query_length")


def run(
    config: SquadSettings,
    model: ModelSettings,
    devices: DistributionSettings,
    log: IO[str] = sys.stderr,
) -> None:
    """Trains, evaluates, predicts and exports, as far as it is asked for.

    Args:
        config: what to do.
        model: with which model.
        devices: on which devices.
        log: where progress goes.

    Raises:
        InputError: see the flags; files are broken, or do not fit the model.
    """
    config = config.as_released()
    finetune.check_head(config, {"kind": KIND}, ("kind",))
    described = finetune.known_task(config)
    files = _read(config, described)
    strategy = loop.prepare(config, devices)
    _check_eval_batch(config, strategy)
    unsaved: list[Callable[[], None]] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(loop.locked(config, strategy))
        finetune.check_export(config.export_dir, config.output_dir, strategy)
        own = log
        if not is_chief(strategy):
            own = stack.enter_context(open(os.devnull, "w"))
        task, windows = _prepare(
            config, model, files, described, strategy, unsaved, own
        )
        asked = len(windows["train"].questions) if "train" in windows else None
        outcome = finetune.run(
            task, config, strategy, examples=asked, unsaved=unsaved, log=log
        )
        # Every worker has to take part in predictions.
        _finish(config, task, windows, outcome, described, own)


def _read(config: SquadSettings, described: Mapping[str, Any]) -> dict[str, Dataset]:
    """Reads the files that are asked for, all as one version; by their use."""
    wanted = {
        "train": config.train_file if config.do_train else None,
        "predict": config.predict_file,
        "threshold": config.threshold_file,
    }
    version = reason = None
    if config.version_2_with_negative is not None:
        version = "2.0" if config.version_2_with_negative else "1.1"
        reason = "--version_2_with_negative"
    elif not config.do_train and "version" in described:
        version, reason = described["version"], f"as {described['folder']}"
    found: dict[str, Dataset] = {}
    for use, path in wanted.items():
        if path:
            dataset = reading.read(path, version)
            if reason and version:
                dataset = dataclasses.replace(dataset, version_is_from=reason)
            found[use] = dataset
            if version is None:
                version, reason = dataset.version, f"as {path}"
    _check_answers(config, found)
    return found


def _check_answers(config: SquadSettings, files: Mapping[str, Dataset]) -> None:
    """Refuses files without the answers that are needed of them."""
    predict, threshold = files.get("predict"), files.get("threshold")
    for flag, dataset in (
        ("do_eval", predict if config.do_eval else None),
        ("fit_threshold", predict if config.fit_threshold else None),
        ("threshold_file", threshold),
    ):
        if dataset is not None and dataset.unanswered is not None:
            raise InputError(
                f"{dataset.path}: question {dataset.unanswered!r} has no answer; "
                f"expected one for --{flag}"
            )
    if threshold and predict:
        judged = {(question.id, question.text) for question in predict.questions}
        for question in threshold.questions:
            if (question.id, question.text) in judged:
                raise InputError(
                    f"--threshold_file={threshold.path}: question {question.id!r} is "
                    f"in --predict_file too; expected others, or --fit_threshold"
                )


def _prepare(
    config: SquadSettings,
    model: ModelSettings,
    files: Mapping[str, Dataset],
    described: Mapping[str, Any],
    strategy: tf.distribute.Strategy,
    unsaved: list[Callable[[], None]],
    log: IO[str],
) -> tuple[QuestionAnswering, dict[str, Windows]]:
    """Converts the files; returns the task, and the windows of each file."""
    for name in ("predict_feature_left_file", "use_einsum"):
        if getattr(config, name) is not None:
            print(f"--{name} has no effect here", file=log)
    albert, tokenizer = finetune.prepare(config, model)
    settings = _settings(config, files, described, albert)
    finetune.check_head(config, settings.to_dict(), ("version", "head"))
    windows = {
        use: _windows(config, use, dataset, tokenizer, settings.lengths, unsaved, log)
        for use, dataset in files.items()
    }
    predict = files.get("predict")
    judges = config.do_train and (config.do_eval or config.do_predict)
    if predict is None or predict.unanswered is not None:
        judges = False
    task = QuestionAnswering(
        albert,
        tokenizer,
        settings,
        training=windows.get("train"),
        evaluation=windows["predict"] if judges else None,
        fits_threshold=config.fit_threshold,
        stores_best=config.null_score_diff_threshold is None,
        multiple=finetune.pad_multiple(config, strategy),
    )
    return task, windows


def _settings(
    config: SquadSettings,
    files: Mapping[str, Dataset],
    described: Mapping[str, Any],
    albert: AlbertConfig,
) -> Settings:
    version = _version(config, files, described)
    head = config.head or described.get("head")
    if head is None or (config.do_train and config.head is None):
        head = "linear" if version == "1.1" else "conditional"
    known = {**dataclasses.asdict(Search()), "start_n_top": 5, "end_n_top": 5}
    for name in known:
        given = getattr(config, name)
        known[name] = described.get(name, known[name]) if given is None else given
    return Settings(
        version=version,
        head=head,
        lengths=_lengths(config, described, albert),
        search=Search(known["n_best_size"], known["max_answer_length"]),
        start_n_top=known["start_n_top"],
        end_n_top=known["end_n_top"],
        null_score_diff_threshold=_threshold(config, files, described, version),
    )


def _version(
    config: SquadSettings, files: Mapping[str, Dataset], described: Mapping[str, Any]
) -> str:
    for dataset in files.values():
        return dataset.version
    if config.version_2_with_negative is not None or "version" not in described:
        return "2.0" if config.version_2_with_negative else "1.1"
    return described["version"]


def _lengths(
    config: SquadSettings, described: Mapping[str, Any], albert: AlbertConfig
) -> Lengths:
    known = {**dataclasses.asdict(Lengths()), **described}
    known["max_seq_length"] = min(
        known["max_seq_length"], albert.max_position_embeddings
    )
    given = {name: getattr(config, name) for name in _LENGTHS}
    return Lengths(**{n: known[n] if v is None else v for n, v in given.items()})


def _threshold(
    config: SquadSettings,
    files: Mapping[str, Dataset],
    described: Mapping[str, Any],
    version: str,
) -> float | None:
    """Returns the threshold to begin with; what is judged had no part in it."""
    if version == "1.1":
        for name in ("null_score_diff_threshold", "threshold_file", "fit_threshold"):
            value = getattr(config, name)
            if value is not None and value is not False:
                raise InputError(
                    f"--{name}={value}: in SQuAD 1.1 every question has an answer; "
                    f"expected no threshold"
                )
        return None
    if config.null_score_diff_threshold is not None:
        return config.null_score_diff_threshold
    stored = described.get("null_score_diff_threshold")
    if config.do_train or stored is None:
        return _THRESHOLD
    judged = files.get("predict")
    if judged is not None and described.get(FITTED_ON) == digest(judged):
        return _THRESHOLD
    return stored


def _windows(
    config: SquadSettings,
    use: str,
    dataset: Dataset,
    tokenizer: Tokenizer,
    lengths: Lengths,
    unsaved: list[Callable[[], None]],
    log: IO[str],
) -> Windows:
    """Converts a file, or takes it converted, and says what is in it."""
    print(
        f"{dataset.path}: SQuAD {dataset.version} ({dataset.version_is_from})", file=log
    )
    for what, count in dataset.warnings().items():
        print(f"  {count:,} {what}", file=log)
    given = {"train": config.train_feature_file, "predict": config.predict_feature_file}
    pieces = conversion.convert(
        dataset,
        tokenizer,
        Path(given.get(use) or config.cache / f"squad_{use}.npz"),
        training=use == "train",
        num_workers=config.num_workers or cores.available(),
        unsaved=unsaved,
        log=log,
    )
    windows = Windows(dataset, pieces, tokenizer, lengths)
    print(
        f"  {len(windows.questions):,} questions, {len(windows):,} windows of "
        f"{windows.lengths.mean():.1f} pieces on average, {windows.lengths.max()} at "
        f"most",
        file=log,
        flush=True,
    )
    return windows


def _check_eval_batch(config: SquadSettings, strategy: tf.distribute.Strategy) -> None:
    devices = strategy.num_replicas_in_sync
    # Where nothing is predicted, batches of this size find the threshold.
    fits = config.threshold_file is not None and not config.do_predict
    if (config.do_eval or fits) and config.eval_batch_size % devices:
        raise InputError(
            f"--eval_batch_size={config.eval_batch_size}: expected a multiple of "
            f"{devices}, the number of devices"
        )


def _finish(
    config: SquadSettings,
    task: QuestionAnswering,
    windows: Mapping[str, Windows],
    outcome: Outcome,
    described: Mapping[str, Any],
    log: IO[str],
) -> None:
    """Finds the threshold, predicts, scores and stores, with the best weights."""
    writes = is_chief(outcome.strategy)
    folder = Path(config.output_dir)
    threshold = task.settings.null_score_diff_threshold
    stored = _of_the_best(task, windows, outcome)
    if threshold is not None and "threshold" in windows:
        dataset = windows["threshold"].dataset
        found = _answers(config, task, windows["threshold"], outcome, None)
        threshold = search_threshold(dataset, found)
        stored = threshold, digest(dataset)
        print(f"{dataset.path}: the best threshold is {threshold:.4f}", file=log)
    if config.do_predict or (config.do_eval and not config.do_train):
        dataset = windows["predict"].dataset
        listed = config.do_predict and writes
        n_best_file = folder / "nbest_predictions.json" if listed else None
        found = _answers(config, task, windows["predict"], outcome, n_best_file)
        if config.fit_threshold:
            threshold = search_threshold(dataset, found)
            stored = threshold, digest(dataset)
        if config.do_predict and writes:
            found.write(folder, threshold)
            print(f"Written: {folder}/predictions.json", file=log)
        _report(config, dataset, found, threshold, outcome, log)
    if config.null_score_diff_threshold is not None:
        stored = config.null_score_diff_threshold, None
    value, fitted_on = stored
    if writes and value is not None and task.store_threshold(folder, value, fitted_on):
        print(f"{folder}: its threshold for other questions is {value:.4f}", file=log)
    if writes and config.export_dir:
        default = described.get("null_score_diff_threshold", threshold)
        chosen = value if value is not None else default
        _export(config.export_dir, task, outcome, chosen)
        print(
            f"Written: {config.export_dir}, a SavedModel that takes raw text, and "
            f"albert_model.tflite",
            file=log,
        )


def _export(
    folder: str, task: QuestionAnswering, outcome: Outcome, threshold: float | None
) -> None:
    """Writes a SavedModel that takes raw text and, as released, a LiteRT model."""
    settings, model = task.settings, outcome.trainer.model
    answer = question_answering(
        model,
        task.tokenizer,
        lengths=settings.lengths,
        search=settings.search,
        version=settings.version,
        threshold=threshold,
    )
    Service(answer).save(folder)
    runtimes.save(model, Path(folder) / "albert_model.tflite", "litert")


def _of_the_best(
    task: QuestionAnswering, windows: Mapping[str, Windows], outcome: Outcome
) -> tuple[float | None, str | None]:
    """Returns the threshold found with the best checkpoint, and on which questions."""
    best = outcome.best.get("best_f1_thresh")
    if task.evaluation is None or best is None:
        return None, None
    return best, digest(windows["predict"].dataset)


def _answers(
    config: SquadSettings,
    task: QuestionAnswering,
    windows: Windows,
    outcome: Outcome,
    n_best_file: Path | None,
) -> Answers:
    """Answers the questions of a file; nothing but the answers is held of it."""
    size = config.predict_batch_size if config.do_predict else config.eval_batch_size
    scored = outcome.trainer.predict(task.source(windows), size)
    return answers.gather(task.candidates(windows, scored), n_best_file)


def _report(
    config: SquadSettings,
    dataset: Dataset,
    found: Answers,
    threshold: float | None,
    outcome: Outcome,
    log: IO[str],
) -> None:
    """Says how good the answers are, where that is known, and notes it."""
    if dataset.unanswered is not None:
        print(
            f"{dataset.path}: not scored, question {dataset.unanswered!r} has no "
            f"answer to compare with",
            file=log,
        )
        return
    figures = evaluate(dataset, found, threshold)
    shown = "  ".join(f"{name} {value:.4f}" for name, value in figures.items())
    print(f"{dataset.path}: {shown}", file=log, flush=True)
    if is_chief(outcome.strategy):
        step = outcome.best.get("step") or steps_made(outcome.trainer.optimizer)
        report.add_results(
            Path(config.output_dir), {**figures, "global_step": int(step)}
        )
