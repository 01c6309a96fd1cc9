"""Compares applying the shared block in a Python loop with a loop in the graph.

For several depths: seconds until the first step is done (tracing), seconds of a later
step (forward and backward, ALBERT-base width, 4 x 128 tokens), and peak memory. Each
case runs in a process of its own.

    python benchmarks/depth.py --layers=12,24,48
"""

import argparse
import dataclasses
import os
import resource
import statistics
import subprocess
import sys
import time

import albert_tf  # noqa: F401 (before TensorFlow, for oneDNN)


def run(layers, looped):
    """Times one case and prints it."""
    import numpy as np
    import tensorflow as tf
    from keras import ops

    from albert_tf import AlbertConfig, AlbertEncoder

    config = dataclasses.replace(
        AlbertConfig.named("albert_base_v2"), num_hidden_layers=layers
    )
    encoder = AlbertEncoder(config)
    ids = tf.constant(np.random.default_rng(0).integers(5, 30000, (4, 128)), "int32")
    block = encoder.blocks[0]
    mask_scores = tf.zeros((4, 1, 1, 128))

    def forward():
        if not looped:
            return encoder({"input_ids": ids})["sequence_output"]
        embedded = encoder.embeddings(ids, tf.zeros_like(ids))
        return ops.fori_loop(
            0,
            layers,
            lambda _, hidden: block(hidden, mask_scores),
            encoder.projection(embedded),
        )

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(forward()))
        variables = [variable.value for variable in encoder.trainable_variables]
        return tape.gradient(loss, variables)

    begin = time.perf_counter()
    step()
    first = time.perf_counter() - begin
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        step()[0].numpy()
        times.append(time.perf_counter() - begin)
    later = statistics.median(times)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{first - later:7.1f} s {later:7.2f} s {memory:7.2f} GiB")


def main():
    """Runs every depth, unrolled and looped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", default="12,24,48")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        layers, looped = args.case.split(":")
        run(int(layers), looped == "looped")
        return
    print(f"{'layers':>6} {'':9} {'tracing':>9} {'step':>9} {'peak memory':>11}")
    for layers in args.layers.split(","):
        for kind in ("unrolled", "looped"):
            done = subprocess.run(
                [sys.executable, __file__, "--case", f"{layers}:{kind}"],
                capture_output=True,
                text=True,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
                check=True,
            )
            print(f"{layers:>6} {kind:9} {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
