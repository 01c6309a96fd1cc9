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
sorts it and makes its answers; Hugging Face's pipeline cuts it and takes it as it
comes. All others get finished arrays of ids, sorted and padded beforehand. int8 is
weights in 8 bits, Hugging Face's by ONNX Runtime's own `quantize_dynamic`, which
optimum calls, after its `quant_pre_process`; its answers are only known to be near.
Ours compute the last layer for the first token alone, so that few layers (--num_layers)
flatter them. On a machine with other work, compare with --num_threads=1: several
threads that have to wait for a core slow the programs down by very different factors.
ONNX files of Hugging Face's model come from `torch.onnx.export` (the TorchScript
exporter, which needs no further package).

With --load so many sentences a second ask one after the other, at random times that are
the same for every program, and wait their turn: printed are the seconds from a
sentence's time to its answer.
"""

import dataclasses
import functools
import importlib.util
import itertools
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import turns

from albert_tf import flags
from albert_tf.corpus import vocabulary
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.text import inputs, tokenization

# How far an answer may be from Keras's; and in 8 bits, or where the tokenizer of
# transformers 5 cuts " ." otherwise than SentencePiece.
_BOUND, _BOUND_NEAR = 2e-5, 0.2
_LABELS = ["a", "b"]
# The text of the file has to have so many different words of one piece.
_WORDS = 200

PROGRAMS = {
    "savedmodel": "ours, SavedModel from text",
    "predict": "ours, predict from text",
    "predict_onnx": "ours, predict --runtime=onnx",
    "litert": "ours, LiteRT",
    "litert_int8": "ours, LiteRT, int8",
    "onnx": "ours, ONNX Runtime",
    "onnx_int8": "ours, ONNX Runtime, int8",
    "hf": "Hugging Face",
    "hf_pipeline": "Hugging Face, pipeline from text",
    "hf_compiled": "Hugging Face, torch.compile",
    "hf_onnx": "Hugging Face, ONNX Runtime",
    "hf_onnx_int8": "Hugging Face, ONNX, int8",
}
# They take all texts at once; some read text with TensorFlow, some give probabilities.
_ALL_AT_ONCE = ("predict", "predict_onnx", "hf_pipeline")
_IN_TENSORFLOW = ("predict", "predict_onnx", "savedmodel")
_PROBABILITIES = (*_IN_TENSORFLOW, "hf_pipeline")
# As they come, and by length; and those at times of their own.
MIXED = ("given", "sorted")
LOAD = "load"


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
    load: float = flags.field("Sentences of the file that ask a second; 0: none.", 0.0)
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
    mixed = MIXED if settings.sentences else ()
    return [*shapes, *mixed, *([LOAD] if settings.load else [])]


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
        if case not in (*MIXED, LOAD):
            rows, length = map(int, case.split("x"))
            random = np.random.default_rng(length)
            chosen = random.choice(self.words, (rows, length - 2))
            return [self.encoded([" ".join(words) for words in chosen])]
        texts = self.sentences[: self.settings.sentences]
        if case == "sorted":
            lengths = map(len, self.tokenizer.encode_batch(texts))
            paired = sorted(zip(lengths, texts, strict=True), key=lambda pair: pair[0])
            texts = [text for _, text in paired]
        size = 1 if case == LOAD else self.settings.batch_size
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
        format = program.removesuffix("_int8")
        if format in runtimes.SUFFIXES:
            path = (folder / program).with_suffix(runtimes.SUFFIXES[format])
            precision = "int8" if program.endswith("_int8") else "float32"
            runtimes.save(model, path, format, precision=precision)
    shutil.copy(settings.spm_model_file, folder / "hf" / "spiece.model")
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
    return _runtime(settings, folder / "litert.tflite")


def litert_int8(settings: Settings, folder: Path) -> Run:
    """The same in 8 bits."""
    return _runtime(settings, folder / "litert_int8.tflite")


def onnx(settings: Settings, folder: Path) -> Run:
    """Our ONNX file."""
    return _runtime(settings, folder / "onnx.onnx")


def onnx_int8(settings: Settings, folder: Path) -> Run:
    """The same in 8 bits."""
    return _runtime(settings, folder / "onnx_int8.onnx")


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


def hf_pipeline(settings: Settings, folder: Path) -> Callable[[list[str]], Any]:
    """Hugging Face's pipeline, from texts in the order given."""
    import torch
    import transformers

    torch.set_num_threads(settings.num_threads)
    tokenizer = transformers.AlbertTokenizer.from_pretrained(folder / "hf")
    answer = transformers.pipeline(
        "text-classification", model=_hf_model(folder), tokenizer=tokenizer, device=-1
    )
    options = {"batch_size": settings.batch_size, "top_k": None, "truncation": True}
    longest = AlbertConfig.named(settings.model).max_position_embeddings
    return lambda texts: [
        {"probabilities": {row["label"]: row["score"] for row in rows}}
        for rows in answer(texts, max_length=longest, **options)
    ]


def hf_compiled(settings: Settings, folder: Path) -> Run:
    """The same, compiled for any size."""
    return hf(settings, folder, compiled=True)


def _hf_model(folder: Path):
    import transformers

    return transformers.AlbertForSequenceClassification.from_pretrained(
        folder / "hf", id2label=dict(enumerate(_LABELS))
    ).eval()


def hf_onnx(settings: Settings, folder: Path) -> Run:
    """Hugging Face's model in ONNX Runtime."""
    path = folder / f"hf-{settings.program}.onnx"
    _export_hf(folder, path)
    return _hf_session(settings, path)


def hf_onnx_int8(settings: Settings, folder: Path) -> Run:
    """The same in 8 bits, each channel of a matrix with a scale of its own."""
    from onnxruntime import quantization
    from onnxruntime.quantization import shape_inference

    path = folder / f"hf-{settings.program}.onnx"
    _export_hf(folder, path)
    # Layers after the first have their kernels through Identity, and with these left
    # the kernels of these layers stay in float32.
    shape_inference.quant_pre_process(path, path, skip_symbolic_shape=True)
    small = folder / "hf-8-bits.onnx"
    quantization.quantize_dynamic(path, small, per_channel=True)
    return _hf_session(settings, small)


def _export_hf(folder: Path, path: Path) -> None:
    import torch

    example = torch.ones((2, 7), dtype=torch.long)
    torch.onnx.export(
        _hf_model(folder),
        (),
        str(path),
        kwargs=dict.fromkeys(_NAMES, example),
        input_names=list(_NAMES),
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in _NAMES},
        dynamo=False,
    )


def _hf_session(settings: Settings, path: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.num_threads
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )

    def run(batch):
        given = {n: batch[0][ours].astype(np.int64) for n, ours in _NAMES.items()}
        return session.run(["logits"], given)[0]

    return run


def take_part(settings: Settings) -> None:
    """Warms up, and measures one case after the other, over and over."""
    if settings.program in _IN_TENSORFLOW:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(settings.num_threads)
        tf.config.threading.set_inter_op_parallelism_threads(settings.num_threads)
    folder = Path(settings.folder)
    texts = Texts(settings)
    run: Callable = globals()[settings.program](settings, folder)
    _check(settings, run, texts, np.load(folder / "logits.npy"))
    measured: dict[str, Callable[[], Iterator[float]]] = {}
    for case in cases(settings):
        batches = texts.of(case)
        if settings.program not in _ALL_AT_ONCE:
            calls = [functools.partial(run, batch) for batch in batches]
        elif case == LOAD:
            calls = [functools.partial(run, batch[1]) for batch in batches]
        else:
            every = [text for _, texts_of_batch in batches for text in texts_of_batch]
            calls = [functools.partial(run, every)]
        if case == LOAD:
            measured[case] = functools.partial(_waits, calls, settings.load)
        else:
            seconds = 0 if case in MIXED else settings.seconds
            measured[case] = functools.partial(_times, calls, seconds)
        for call in calls:
            call()
    print("ready", flush=True)
    for _, case in zip(sys.stdin, itertools.cycle(measured), strict=False):
        print(*(f"{seconds:.6f}" for seconds in measured[case]()), flush=True)


def _check(settings: Settings, run: Callable, texts: Texts, logits: np.ndarray) -> None:
    """Ends a program whose answers are other ones."""
    given = _probe(texts)
    if settings.program in _ALL_AT_ONCE:
        rows = [found["probabilities"] for found in run(given[1])]
        found = np.array([[row[label] for label in _LABELS] for row in rows])
    else:
        found = run(given)
    if settings.program in _PROBABILITIES:
        found = np.log(found)
        logits = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    near = settings.program.endswith(("_int8", "_pipeline"))
    bound = _BOUND_NEAR if near else _BOUND
    np.testing.assert_allclose(found, logits, rtol=0, atol=bound)


def _times(calls: Sequence[Callable[[], Any]], seconds: float) -> Iterator[float]:
    """Makes all calls at least once, for some seconds; yields how long all take."""
    if seconds:
        calls[0]()  # others have had the caches
    first = begin = time.perf_counter()
    while True:
        for call in calls:
            call()
        end = time.perf_counter()
        yield end - begin
        if end - first > seconds:
            return
        begin = end


def _waits(calls: Sequence[Callable[[], Any]], load: float) -> Iterator[float]:
    """Makes calls that come at random times; yields how long each has to wait."""
    times = np.random.default_rng(0).exponential(1 / load, len(calls)).cumsum()
    first = time.perf_counter()
    for call, asked in zip(calls, times, strict=True):
        time.sleep(max(0.0, first + asked - time.perf_counter()))
        call()
        yield time.perf_counter() - first - asked


def report(settings: Settings, found: dict[str, dict[str, list[float]]]) -> None:
    """Prints a table for each case: `found` has seconds by case and program."""
    for case, times in found.items():
        if not times:
            continue
        medians = {name: statistics.median(times[name]) for name in times}
        print(f"\n{_title(settings, case)}")
        for name, median in medians.items():
            of_one = times[name]
            bits = name.endswith("_int8")
            peers = [
                medians[peer]
                for peer in medians
                if peer.startswith("hf") and peer.endswith("_int8") == bits
            ]
            line = f"  {PROGRAMS[name]:34}"
            if case != LOAD:
                mixed = case in MIXED
                count = settings.sentences if mixed else int(case.split("x")[0])
                line += f"{count / median:9.1f} sentences/s"
            if case not in MIXED:
                worst = float(np.quantile(of_one, 0.99))
                line += f"{median * 1e3:9.2f} ms, p99 {worst * 1e3:9.2f} ms"
            fastest = min(peers, default=float("nan"))
            line += f"{fastest / median:6.2f} x the fastest of the others"
            print(f"{line} ({len(of_one)} calls)")


def _title(settings: Settings, case: str) -> str:
    if case == LOAD:
        return f"{settings.load:g} sentences a second, one at a time"
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
