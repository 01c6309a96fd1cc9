"""The model side of SQuAD: heads, losses, and answers while it is evaluated."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from keras import ops

from albert_tf.data.batches import ByLength
from albert_tf.errors import InputError
from albert_tf.model import heads
from albert_tf.model.config import AlbertConfig
from albert_tf.model.models import AlbertConditionalSpanLabeler, AlbertSpanLabeler
from albert_tf.tasks import base
from albert_tf.tasks.squad import answers, scores
from albert_tf.tasks.squad.answers import Answers, Candidates, Search
from albert_tf.tasks.squad.features import Lengths, Window, Windows
from albert_tf.tasks.squad.reading import Dataset
from albert_tf.text.tokenization import Tokenizer
from albert_tf.weights import metadata

KIND = "question_answering"
# Keys of `task.json`: the threshold, and `digest` of the questions it was found on.
THRESHOLD, FITTED_ON = "null_score_diff_threshold", "threshold_fitted_on"

Head = Literal["linear", "conditional"]

_LOGITS = ("start_logits", "end_logits")
_BEAMS = (
    *("start_top_index", "start_top_log_probs"),
    *("end_top_index", "end_top_log_probs"),
)
# A model that has learned next to nothing about SQuAD 1.1, in percent.
_COLLAPSED_F1 = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a model of SQuAD is, apart from its weights.

    Attributes:
        version: whether a question may have no answer ("2.0").
        head: "linear" scores first and last pieces apart, and takes the first piece's
            score for that of no answer; "conditional" see `heads.ConditionalSpanHead`.
        lengths: of windows.
        search: what counts as an answer.
        start_n_top: candidate starts of the conditional head.
        end_n_top: candidate ends for each of them.
        null_score_diff_threshold: null odds above it mean no answer; 1.1 has none.

    Raises:
        InputError: windows are too short for so many candidates.
    """

    version: str
    head: Head
    lengths: Lengths
    search: Search
    start_n_top: int = 5
    end_n_top: int = 5
    null_score_diff_threshold: float | None = None

    def __post_init__(self) -> None:
        for name in ("start_n_top", "end_n_top"):
            count = getattr(self, name)
            if not 1 <= count <= self.lengths.max_seq_length:
                raise InputError(
                    f"{name} {count}: expected a number from 1 to max_seq_length "
                    f"({self.lengths.max_seq_length})"
                )

    @property
    def least_length(self) -> int:
        """Positions that a window must have for the head to choose from."""
        if self.head == "linear":
            return 1
        return max(self.start_n_top, self.end_n_top)

    def to_dict(self) -> dict[str, Any]:
        """Returns what `task.json` says."""
        fields = dataclasses.asdict(self)
        return {**fields.pop("lengths"), **fields.pop("search"), **fields}


class QuestionAnswering(base.FineTuningTask):
    """Answers that are spans of a context (paper: SQuAD 1.1 and 2.0).

    Figures of an evaluation are those of the official scripts, in percent, and the
    threshold that answers were decided with (`null_score_diff_threshold`, 2.0). There
    is no loss of an evaluation: its questions have several answers.

    Args:
        config: the model's.
        tokenizer: that made the windows.
        settings: which head, and how answers are found.
        training: windows to train on, if any.
        evaluation: windows of questions with answers, if any.
        fits_threshold: decide answers with the best threshold for the very questions
            that are judged, as released, instead of the settings' threshold.
        stores_best: note the threshold that is best for the evaluated questions with
            each best checkpoint, for others; else that of the settings stays.
        multiple: see `ByLength`.

    Raises:
        InputError: windows are longer than the model's inputs.
    """

    def __init__(
        self,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        settings: Settings,
        *,
        training: Windows | None = None,
        evaluation: Windows | None = None,
        fits_threshold: bool = False,
        stores_best: bool = True,
        multiple: int = 8,
    ):
        longest = settings.lengths.max_seq_length
        if longest > config.max_position_embeddings:
            raise InputError(
                f"--max_seq_length={longest}: the model reads "
                f"{config.max_position_embeddings} pieces at most"
            )
        self.config = config
        self.tokenizer = tokenizer
        self.settings = settings
        self.tokens_per_example = longest
        self.fits_threshold = fits_threshold
        self.kept = (THRESHOLD, FITTED_ON) if stores_best else ()
        first = settings.version == "1.1"
        # The best F1 of any threshold, as a threshold can be had later.
        self.key_metric = "f1" if first else "best_f1"
        self.shown = ("exact_match", "f1") if first else ("exact", "f1", "best_f1")
        if settings.head == "conditional":
            self.outputs_per_token = 4.0 * config.hidden_size
        self._multiple = multiple
        self._evaluated = evaluation
        self.training = self.source(training, targets=True) if training else None
        self.evaluation = self.source(evaluation) if evaluation else None

    @property
    def description(self) -> dict[str, Any]:
        """What `task.json` says of the model."""
        return {"kind": KIND, **self.settings.to_dict()}

    def source(self, windows: Windows, targets: bool = False) -> ByLength:
        """Returns windows as a source of batches.

        Args:
            windows: to read.
            targets: with the answers to learn.
        """
        least = self.settings.least_length

        def make(rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
            return windows.batch(rows, max(length, least), targets)

        return ByLength(windows.lengths, make, self.tokens_per_example, self._multiple)

    def build_model(self):
        """Creates the encoder with the head."""
        settings = self.settings
        if settings.head == "linear":
            return AlbertSpanLabeler(self.config)
        return AlbertConditionalSpanLabeler(
            self.config, settings.start_n_top, settings.end_n_top
        )

    def weights(self, batch: base.Batch) -> dict[str, Any]:
        """Returns the number of windows, for each loss."""
        names = ["start_loss", "end_loss"]
        if self.settings.head == "conditional":
            names.append("answerable_loss")
        if "start_positions" not in batch:
            return {}
        return dict.fromkeys(names, ops.sum(base.example_weights(batch)))

    def sums(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Returns the summed cross-entropies of first pieces, last ones, and no answer.

        Every window of a batch to train on counts.
        """
        if "start_positions" not in batch:
            return {}
        known = batch["start_positions"], batch["end_positions"]
        if self.settings.head == "linear":
            logits = outputs["start_logits"], outputs["end_logits"]
            _, start, end = heads.span_loss(*logits, *known)
            found = {"start_loss": start, "end_loss": end}
        else:
            _, start, end, answerable = heads.conditional_span_loss(
                outputs, *known, batch["is_impossible"]
            )
            found = {
                "start_loss": start,
                "end_loss": end,
                "answerable_loss": answerable,
            }
        count = ops.sum(base.example_weights(batch))
        return {name: mean * count for name, mean in found.items()}

    def total(self, losses: Mapping[str, Any]) -> Any:
        """Returns half of each loss: the mean of start and end, as released."""
        return 0.5 * super().total(losses)

    def metrics(
        self, outputs: base.Outputs, batch: base.Batch
    ) -> dict[str, tuple[Any, Any]]:
        """Returns none: `score` has them."""
        return {}

    def predictions(self, outputs: base.Outputs, batch: base.Batch) -> dict[str, Any]:
        """Keeps the logits of every position, or the beams and the null odds."""
        if self.settings.head == "linear":
            return {name: outputs[name] for name in _LOGITS}
        return {name: outputs[name] for name in (*_BEAMS, "cls_logits")}

    def score(
        self, predictions: base.Predictions, figures: Mapping[str, float]
    ) -> dict[str, float]:
        """Scores the answers as the official script of the version does."""
        windows = self._evaluated
        if windows is None:
            return {}
        found = answers.gather(self.candidates(windows, predictions))
        threshold = self.settings.null_score_diff_threshold
        if self.fits_threshold:
            threshold = search_threshold(windows.dataset, found)
        return evaluate(windows.dataset, found, threshold)

    def best_marked(self, folder: Path, figures: Mapping[str, float]) -> None:
        """Notes the threshold of a new best checkpoint, so that no kill loses it."""
        threshold = figures.get("best_f1_thresh")
        if self.kept and self._evaluated is not None and threshold is not None:
            self.store_threshold(folder, threshold, digest(self._evaluated.dataset))

    def store_threshold(
        self, folder: Path, threshold: float, fitted_on: str | None
    ) -> bool:
        """Notes a threshold in `task.json`, and the questions that it was found on.

        Args:
            folder: of the model; without a `task.json` it is left as it is.
            threshold: for other questions.
            fitted_on: `digest` of the questions; None where it was given.

        Returns:
            Whether it is noted.
        """
        noted = metadata.read_task(folder)
        if noted is not None:
            changed = {**noted, THRESHOLD: threshold, FITTED_ON: fitted_on}
            metadata.write_task(folder, self.tokenizer, changed)
        return noted is not None

    def complaint(self, figures: Mapping[str, float]) -> str | None:
        """Names a model that answers no better than by silence, or hardly at all."""
        if self.settings.version == "2.0":
            silent = 100.0 * figures.get("NoAns_total", 0) / figures.get("total", 1)
            if figures.get("best_f1", 100.0) > silent:
                return None
            fault = f"best_f1 {figures['best_f1']:.2f} is that of not answering at all"
        elif figures.get("f1", 100.0) >= _COLLAPSED_F1:
            return None
        else:
            fault = f"f1 {figures['f1']:.2f} is below {_COLLAPSED_F1:.0f}"
        return (
            f"{fault}: the model has not learned yet, or has collapsed (another "
            f"--seed, a lower --learning_rate or a longer warm-up may help)"
        )

    def candidates(
        self, windows: Windows, predictions: base.Predictions
    ) -> Iterator[tuple[str, Candidates]]:
        """Finds the possible answers of one question after the other.

        Only one question's are held. Of a question whose windows were not all seen
        nothing comes.

        Args:
            windows: what was read.
            predictions: of each, in the same order.
        """
        predictions = iter(predictions)
        for number, question in enumerate(windows.questions):
            collector = answers.Collector(self.settings.search)
            for place in range(*windows.bounds[number : number + 2].tolist()):
                found = next(predictions, None)
                if found is None:
                    return
                window = windows[place]
                collector.add(window, *self._spans(window, found))
            yield question.id, self._with_odds(collector.candidates()[question.id])

    def _spans(
        self, window: Window, found: Mapping[str, np.ndarray]
    ) -> tuple[list[answers.Span], float | None]:
        """Returns the spans of a window, and its null odds or null score (2.0).

        **As released:** the linear head's logits of padding are searched, too. Here
        they are left out, so that the neighbours in a batch decide nothing.
        """
        settings = self.settings
        optional = settings.version == "2.0"
        if settings.head == "conditional":
            spans = answers.spans_of_beams(window, found, settings.search)
            return spans, float(found["cls_logits"]) if optional else None
        start, end = (found[name][: len(window.ids)] for name in _LOGITS)
        spans = answers.spans_of_logits(window, start, end, settings.search)
        return spans, float(start[0]) + float(end[0]) if optional else None

    def _with_odds(self, found: Candidates) -> Candidates:
        """Turns the null score of the linear head into odds against the best span."""
        if self.settings.head == "conditional" or found.null_odds is None:
            return found
        odds = found.null_odds - found.listed()[0].score
        return dataclasses.replace(found, null_odds=odds)


def digest(dataset: Dataset) -> str:
    """Returns what tells sets of questions apart, hexadecimal SHA-256."""
    ids = "\n".join(sorted(question.id for question in dataset.questions))
    return hashlib.sha256(ids.encode(errors="surrogatepass")).hexdigest()


def evaluate(
    dataset: Dataset, found: Answers, threshold: float | None
) -> dict[str, float]:
    """Scores answers, and says with which threshold (2.0); see `scores.evaluate`.

    Args:
        dataset: the questions; those that were not answered are left out.
        found: the answers.
        threshold: see `Answers.decided`.

    Raises:
        InputError: no question was answered, or see `scores.evaluate`.
    """
    answered = _answered(dataset, found)
    if dataset.version == "1.1":
        return scores.evaluate(answered, found.texts)
    figures = scores.evaluate(answered, found.texts, found.null_odds, threshold)
    if threshold is None:
        return figures
    return {**figures, "null_score_diff_threshold": threshold}


def search_threshold(dataset: Dataset, found: Answers) -> float | None:
    """Returns the threshold with the highest F1; None for SQuAD 1.1."""
    if dataset.version == "1.1":
        return None
    return scores.search_threshold(
        _answered(dataset, found), found.texts, found.null_odds
    )


def _answered(dataset: Dataset, found: Answers) -> Dataset:
    """Leaves out the questions that an evaluation did not get to."""
    if not found.texts:
        raise InputError(
            f"{dataset.path}: no question was read in full; expected a higher "
            f"--max_eval_steps"
        )
    paragraphs = (
        paragraph._replace(
            questions=tuple(q for q in paragraph.questions if q.id in found.texts),
        )
        for paragraph in dataset.paragraphs
    )
    return dataclasses.replace(dataset, paragraphs=tuple(paragraphs))
