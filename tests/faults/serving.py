"""Asks exported models from many threads for a while: same answers, flat memory.

    python tests/faults/serving.py --minutes=10 --threads=8

Each request is answered once alone before, and then again and again by whichever thread
comes to it, among requests that have to fail. Ends with 1 where an answer differs by a
bit, a request that has to fail does not, or memory grows by more than --growth.
"""

import argparse
import itertools
import queue
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (what the SavedModel needs)

from albert_tf.errors import InputError
from albert_tf.model import models
from albert_tf.model.config import AlbertConfig
from albert_tf.serve import predict, runtimes
from albert_tf.text.tokenization import SentencePieceTokenizer

VOCABULARY = Path(__file__).parents[1] / "fixtures/spm_small.model"
WORDS = ["the", "river", "rose", "cat", "many words", "ﬁne", "각", "nobody"]
TASK = {
    "kind": "classification",
    "texts": 1,
    "labels": ["no", "yes"],
    "max_seq_length": 64,
}


def resident():
    """Returns this process's resident memory in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def texts(random):
    """Returns a batch of 0 to 8 texts, some of them far longer than is read."""
    lengths = random.choice([0, 1, 5, 30, 200], random.integers(0, 9))
    return [" ".join(random.choice(WORDS, n)) for n in lengths]


def ids(random, config):
    rows, length = random.integers(1, 9), random.integers(1, 65)
    return {
        "input_ids": random.integers(0, config.vocab_size, (rows, length), "int32"),
        "input_mask": np.ones((rows, length), "int32"),
        "segment_ids": np.zeros((rows, length), "int32"),
    }


def services(folder, random, requests):
    """Yields a name, a function that answers, its requests, and one that fails."""
    tokenizer = SentencePieceTokenizer(str(VOCABULARY))
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.4,
    )
    model = models.AlbertClassifier(config, 2)
    predictor = predict.of_model(model, tokenizer, TASK)
    batches = [texts(random) for _ in range(requests)]
    bad = ["the river", None, "x" * 100_000_000]
    yield "Predictor", lambda rows: list(predictor(rows)), batches, bad

    predictor.service.save(folder / "served")
    graph = tf.saved_model.load(str(folder / "served")).signatures["serving_default"]

    def serve(rows):
        given = {"text": tf.constant(rows, tf.string if len(rows) == 0 else None)}
        return {name: value.numpy() for name, value in graph(**given).items()}

    yield "SavedModel", serve, batches, [1, 2]
    wrong = {"input_ids": np.zeros((1, 999), "int32")}
    for format, suffix in runtimes.SUFFIXES.items():
        path = folder / f"model{suffix}"
        run = runtimes.load(runtimes.save(model, path, format), num_threads=1)
        yield format, run, [ids(random, config) for _ in range(requests)], wrong


def same(first, second):
    if isinstance(first, list):
        return first == second
    return all(np.array_equal(first[name], second[name]) for name in first)


def main():
    """Serves for --minutes, and prints a line a minute and the counts at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--requests", type=int, default=60, help="different ones, each")
    parser.add_argument("--growth", type=float, default=0.02, help="of the memory")
    arguments = parser.parse_args()
    random = np.random.default_rng(1)
    counts: Counter = Counter()
    problems: queue.SimpleQueue = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        work = [
            (name, answer, request, answer(request), bad)
            for name, answer, requests, bad in services(
                Path(folder), random, arguments.requests
            )
            for request in requests
        ]
        random.shuffle(work)
        end = time.monotonic() + 60 * arguments.minutes

        def ask(thread):
            for number in itertools.count(thread * 1_009):
                if time.monotonic() > end:
                    return
                name, answer, request, expected, bad = work[number % len(work)]
                try:
                    if not same(answer(request), expected):
                        problems.put(f"{name}: another answer to {request}")
                    counts[name] += 1
                    if number % 7 == 0:
                        try:
                            answer(bad)
                            problems.put(f"{name}: no refusal of {bad}")
                        except (InputError, ValueError, TypeError, RuntimeError):
                            counts["refused"] += 1
                        except Exception as error:  # of TensorFlow and ONNX Runtime
                            counts[f"refused by {type(error).__name__}"] += 1
                except Exception as error:
                    problems.put(f"{name}: {error!r}")

        threads = [
            threading.Thread(target=ask, args=(n,)) for n in range(arguments.threads)
        ]
        for thread in threads:
            thread.start()
        memory = []
        while any(thread.is_alive() for thread in threads):
            time.sleep(min(60, 6 * arguments.minutes))
            memory.append(resident())
            print(
                f"{sum(counts.values()):,} requests, {memory[-1]:,.0f} MB", flush=True
            )
    # The first tenth of the time is a warm-up.
    grown = memory[-1] / memory[0] - 1
    print(dict(counts), f"memory {grown:+.1%}, {problems.qsize()} problems")
    for _ in range(min(problems.qsize(), 5)):
        print(problems.get()[:500])
    sys.exit(bool(problems.qsize() or grown > arguments.growth))


if __name__ == "__main__":
    main()
