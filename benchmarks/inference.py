"""Measures how fast an exported classifier answers, beside Hugging Face.

    python benchmarks/inference.py --input_file=sentences.txt --spm_model_file=30k.model
    python benchmarks/inference.py ... --num_layers=2 --rounds=2 --shapes=1x16,8x32

Every program has the same random weights, the same token ids and the same number of
threads, shows that its first answers are the same, warms up, and then takes its turns
in a process of its own. Measured are batches in which every text has the same length,
and the sentences of the file as they are: in batches as they come, padded to the
longest of each batch, and in batches of like length, which is what `predict` of this
package always does; so it can be seen what the order gains, and what the program.

Ours from text (`SavedModel`, `predict`) also cuts text into pieces and, as `predict`,
sorts it and makes its answers; all others get finished arrays of ids, sorted and padded
beforehand. Ours compute the last layer for the first token alone, so that few layers
(--num_layers) flatter them. On a machine with other work, compare with
--num_threads=1: several threads that have to wait for a core slow the programs down by
very different factors. ONNX files of Hugging Face's model come from
`torch.onnx.export` (the TorchScript exporter, which needs no further package).
"""

import dataclasses
import functools
import importlib.util
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import turns

from albert_tf import flags
from albert_tf.corpus import vocabulary
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.text import inputs, tokenization

# How far a float32 answer may be from Keras's.
_BOUND = 2e-5
_LABELS = ("a", "b")
# The text of the file has to have so many different words of one piece.
_WORDS = 200

PROGRAMS = {
    "savedmodel": "ours, SavedModel from text",
    "predict": "ours, predict from text",
    "predict_onnx": "ours, predict --runtime=onnx",
    "litert": "ours, LiteRT",
    "onnx": "ours, ONNX Runtime",
    "hf": "Hugging Face",
    "hf_compiled": "Hugging Face, torch.compile",
    "hf_onnx": "Hugging Face, ONNX Runtime",
}
# They order the texts themselves; these and one more read text, with TensorFlow.
_PREDICT = ("predict", "predict_onnx")
_FROM_TEXT = (*_PREDICT, "savedmodel")
# As they come, and by length.
MIXED = ("given", "sorted")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure."""

    input_file: str = flags.field("Sentences, one a line, UTF-8.")
    spm_model_file: str = flags.field("SentencePiece model.")
    model: str = flags.field("A published configuration.", "albert_base_v2")
    num_layers: int | None = flags.field(
        "Layers, where the model's are not meant.", None
    )
    shapes: tuple[str, ...] = flags.field(
        "Batches of texts of one length, as texts x tokens.",
        ("1x16", "1x32", "1x64", "1x128", "1x256", "1x512", "8x32", "8x128"),
    )
    sentences: int = flags.field("Sentences of the file to use; 0: none.", 128)
    batch_size: int = flags.field("Sentences of the file in a batch.", 16)
    num_threads: int = flags.field("Threads of each program.", 2)
    rounds: int = flags.field("Turns of each program for each shape.", 3)
    seconds: float = flags.field("Least length of a turn.", 1.5)
    programs: tuple[str, ...] = flags.field("Which programs.", tuple(PROGRAMS))
    program: str = flags.field("Set by this program.", "")
    folder: str = flags.field("Set by this program.", "")

    def __post_init__(self) -> None:
        for name in self.programs:
            if name not in PROGRAMS:
                raise InputError(
                    f"--programs={name}: expected some of {', '.join(PROGRAMS)}"
                )


flags.define(Settings)

# Token ids [B, T] by our names, and the texts that they are of.
Batch = tuple[dict[str, np.ndarray], list[str]]


def cases(settings: Settings) -> list[str]:
    """Lists what every program measures."""
    shapes = dict.fromkeys(settings.shapes)
    return [*shapes, *(MIXED if settings.sentences else ())]


class Texts:
    """The texts of all cases, and their token ids."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.tokenizer = tokenization.SentencePieceTokenizer(settings.spm_model_file)
        self.longest = AlbertConfig.named(settings.model).max_position_embeddings
        lines = vocabulary.read_lines((settings.input_file,))
        found = (line.strip() for line in lines)
        self.sentences = list(
            itertools.islice(filter(None, found), max(settings.sentences, 2000))
        )
        if len(self.sentences) < settings.sentences:
            raise InputError(
                f"{settings.input_file}: {len(self.sentences)} sentences; expected "
                f"--sentences={settings.sentences}"
            )
        words = dict.fromkeys(w for line in self.sentences for w in line.split())
        pieces = self.tokenizer.encode_batch(list(words))
        self.words = [w for w, p in zip(words, pieces, strict=True) if len(p) == 1]
        if len(self.words) < _WORDS:
            raise InputError(
                f"{settings.input_file}: {len(self.words)} words of one piece; "
                f"expected {_WORDS}"
            )

    def of(self, case: str) -> list[Batch]:
        """Returns the batches of a case."""
        if case not in MIXED:
            rows, length = map(int, case.split("x"))
            random = np.random.default_rng(length)
            chosen = random.choice(self.words, (rows, length - 2))
            return [self.encoded([" ".join(words) for words in chosen])]
        texts = self.sentences[: self.settings.sentences]
        if case == "sorted":
            lengths = map(len, self.tokenizer.encode_batch(texts))
            paired = sorted(zip(lengths, texts, strict=True), key=lambda pair: pair[0])
            texts = [text for _, text in paired]
        size = self.settings.batch_size
        return [
            self.encoded(texts[begin : begin + size])
            for begin in range(0, len(texts), size)
        ]

    def encoded(self, texts: list[str]) -> Batch:
        """Returns texts as one batch, as long as the longest of them."""
        made = inputs.encode(self.tokenizer, texts, None, self.longest)
        every, length = range(len(made)), int(made.lengths.max())
        return inputs.pad(made, every, length, self.tokenizer.pad_id), texts


def prepare(settings: Settings, folder: Path) -> None:
    """Writes the model in every form, and some answers of it by Keras."""
    import keras

    from albert_tf import weights
    from albert_tf.model import models
    from albert_tf.serve import runtimes
    from albert_tf.serve.service import Service
    from albert_tf.tasks import text_graphs

    keras.utils.set_random_seed(1)
    config = AlbertConfig.named(settings.model)
    if settings.num_layers is not None:
        config = dataclasses.replace(config, num_hidden_layers=settings.num_layers)
    model = models.AlbertClassifier(config, len(_LABELS))
    texts = Texts(settings)
    ids, _ = _probe(texts)
    np.save(folder / "logits.npy", np.asarray(model(ids)["logits"]))
    weights.save(model, folder / "hf", "hf")
    weights.save(model, folder / "ours.keras", "keras")
    for program in settings.programs:
        if program in runtimes.SUFFIXES:
            path = (folder / "ours").with_suffix(runtimes.SUFFIXES[program])
            runtimes.save(model, path, program)
    answer = text_graphs.classifier(
        model, texts.tokenizer, labels=_LABELS, max_seq_length=texts.longest
    )
    Service(answer).save(folder / "served")


def _probe(texts: Texts) -> Batch:
    """Returns three sentences of different length."""
    return texts.encoded(texts.sentences[:3])


Run = Callable[[Batch], np.ndarray]


def savedmodel(settings: Settings, folder: Path) -> Run:
    """Our SavedModel, which reads text; gives probabilities."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    serve = tf.saved_model.load(str(folder / "served")).signatures["serving_default"]
    return lambda batch: serve(text=tf.constant(batch[1]))["probabilities"].numpy()


def predict(
    settings: Settings,
    folder: Path,
    runtime: Literal["onnx"] | None = None,
) -> Callable[[list[str]], Any]:
    """What `predict.py` does with all of the texts."""
    import keras

    from albert_tf.serve import predict, runtimes
    from albert_tf.text import tokenization

    model = keras.models.load_model(folder / "ours.keras")
    if runtime is not None:
        model = runtimes.computed_by(model, runtime, num_threads=settings.num_threads)
    task = {"kind": "classification", "labels": _LABELS, "texts": 1}
    tokenizer = tokenization.SentencePieceTokenizer(settings.spm_model_file)
    options = predict.AnswerSettings(batch_size=settings.batch_size)
    answer = predict.of_model(model, tokenizer, task, options)
    return lambda texts: list(answer({"text": text} for text in texts))


def predict_onnx(settings: Settings, folder: Path) -> Callable[[list[str]], Any]:
    """The same, computed by ONNX Runtime."""
    return predict(settings, folder, "onnx")


def litert(settings: Settings, folder: Path) -> Run:
    """Our LiteRT file."""
    return _runtime(settings, folder / "ours.tflite")


def onnx(settings: Settings, folder: Path) -> Run:
    """Our ONNX file."""
    return _runtime(settings, folder / "ours.onnx")


def _runtime(settings: Settings, path: Path) -> Run:
    from albert_tf.serve import runtimes

    run = runtimes.load(path, settings.num_threads)
    return lambda batch: run(batch[0])["logits"]


# Hugging Face's names of our inputs.
_NAMES = {
    "input_ids": "input_ids",
    "attention_mask": "input_mask",
    "token_type_ids": "segment_ids",
}


def hf(settings: Settings, folder: Path, compiled: bool = False) -> Run:
    """Hugging Face's model in PyTorch."""
    import torch

    torch.set_num_threads(settings.num_threads)
    model = _hf_model(folder)
    forward = torch.compile(model, dynamic=True) if compiled else model

    def run(batch):
        with torch.inference_mode():
            given = {
                theirs: torch.from_numpy(batch[0][ours]).long()
                for theirs, ours in _NAMES.items()
            }
            return forward(**given).logits.numpy()

    return run


def hf_compiled(settings: Settings, folder: Path) -> Run:
    """The same, compiled for any size."""
    return hf(settings, folder, compiled=True)


def _hf_model(folder: Path):
    import transformers

    return transformers.AlbertForSequenceClassification.from_pretrained(
        folder / "hf", num_labels=len(_LABELS)
    ).eval()


def hf_onnx(settings: Settings, folder: Path) -> Run:
    """Hugging Face's model in ONNX Runtime."""
    import onnxruntime
    import torch

    example = torch.ones((2, 7), dtype=torch.long)
    torch.onnx.export(
        _hf_model(folder),
        (),
        str(folder / "hf.onnx"),
        kwargs=dict.fromkeys(_NAMES, example),
        input_names=list(_NAMES),
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in _NAMES},
        dynamo=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.num_threads
    session = onnxruntime.InferenceSession(
        folder / "hf.onnx", options, providers=["CPUExecutionProvider"]
    )

    def run(batch):
        given = {n: batch[0][ours].astype(np.int64) for n, ours in _NAMES.items()}
        return session.run(["logits"], given)[0]

    return run


def take_part(settings: Settings) -> None:
    """Warms up, and measures one case after the other, over and over."""
    if settings.program in _FROM_TEXT:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(settings.num_threads)
        tf.config.threading.set_inter_op_parallelism_threads(settings.num_threads)
    folder = Path(settings.folder)
    texts = Texts(settings)
    run: Callable = globals()[settings.program](settings, folder)
    _check(settings, run, texts, np.load(folder / "logits.npy"))
    measured: dict[str, Callable[[], Any]] = {}
    for case in cases(settings):
        batches = texts.of(case)
        if settings.program in _PREDICT:
            every = [text for _, texts_of_batch in batches for text in texts_of_batch]
            measured[case] = functools.partial(run, every)
        else:
            measured[case] = functools.partial(_run_each, run, batches)
        measured[case]()
    print("ready", flush=True)
    for _, case in zip(sys.stdin, itertools.cycle(measured), strict=False):
        if case not in MIXED:
            measured[case]()  # others have had the caches
        times = _times(measured[case], 0 if case in MIXED else settings.seconds)
        print(*(f"{seconds:.6f}" for seconds in times), flush=True)


def _run_each(run: Run, batches: list[Batch]) -> None:
    for batch in batches:
        run(batch)


def _check(settings: Settings, run: Callable, texts: Texts, logits: np.ndarray) -> None:
    """Ends a program whose answers are other ones."""
    given = _probe(texts)
    if settings.program in _PREDICT:
        rows = [found["probabilities"] for found in run(given[1])]
        found = np.array([[row[label] for label in _LABELS] for row in rows])
    else:
        found = run(given)
    if settings.program in _FROM_TEXT:
        found = np.log(found)
        logits = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(found, logits, rtol=0, atol=_BOUND)


def _times(call: Callable[[], Any], seconds: float) -> Iterator[float]:
    """Calls at least once, for some seconds; yields how long each call takes."""
    first = begin = time.perf_counter()
    while True:
        call()
        end = time.perf_counter()
        yield end - begin
        if end - first > seconds:
            return
        begin = end


def report(settings: Settings, found: dict[str, dict[str, list[float]]]) -> None:
    """Prints a table for each case: `found` has seconds by case and program."""
    for case, times in found.items():
        if not times:
            continue
        medians = {name: statistics.median(times[name]) for name in times}
        peers = {name: medians[name] for name in medians if name.startswith("hf")}
        fastest = min(peers.values(), default=float("nan"))
        mixed = case in MIXED
        count = settings.sentences if mixed else int(case.split("x")[0])
        print(f"\n{_title(settings, case)}")
        for name, median in medians.items():
            of_one = times[name]
            worst = float(np.quantile(of_one, 0.99))
            line = f"  {PROGRAMS[name]:28}{count / median:9.1f} sentences/s"
            if not mixed:
                line += f"{median * 1e3:9.2f} ms, p99 {worst * 1e3:9.2f} ms"
            line += f"{fastest / median:6.2f} x the fastest of the others"
            print(f"{line} ({len(of_one)} calls)")


def _title(settings: Settings, case: str) -> str:
    if case not in MIXED:
        return f"{case} tokens"
    order = {"given": "in the given order", "sorted": "in batches of like length"}
    return (
        f"{settings.sentences} sentences, {settings.batch_size} in a batch, "
        f"{order[case]}"
    )


def main() -> None:
    """Prepares the models, lets the programs take turns, and prints the tables."""
    settings = flags.read(Settings)
    if settings.program:
        take_part(settings)
        return
    programs = [
        name
        for name in settings.programs
        if importlib.util.find_spec("transformers") or not name.startswith("hf")
    ]
    with tempfile.TemporaryDirectory() as folder:
        prepare(settings, Path(folder))
        command = [sys.executable, *sys.argv, f"--folder={folder}"]
        commands = {name: [*command, f"--program={name}"] for name in programs}
        found: dict[str, dict[str, list[float]]] = {}
        rounds = settings.rounds * len(cases(settings))
        taken = turns.take_long_turns(commands, rounds)
    for name, answers in taken.items():
        for case, times in zip(itertools.cycle(cases(settings)), answers, strict=False):
            found.setdefault(case, {}).setdefault(name, []).extend(times)
    report(settings, found)


if __name__ == "__main__":
    flags.run(main)
