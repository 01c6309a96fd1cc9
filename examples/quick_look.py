"""Builds ALBERT, counts it, and runs it once: what `make demo` shows.

python examples/quick_look.py
"""

import dataclasses
import time

import numpy as np

from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer


def count(config):
    """Returns the parameters of encoder and pooler."""
    return AlbertEncoder(config).count_params()


def main():
    """Prints sizes, the paper's sharing strategies, and one forward pass."""
    print("Parameters of encoder and pooler, each variable once:")
    for size in ("base", "large", "xlarge", "xxlarge"):
        config = AlbertConfig.named(f"albert_{size}_v2")
        print(
            f"  albert_{size}_v2{'':{8 - len(size)}} {count(config):>11,}   "
            f"{config.num_hidden_layers} layers, hidden size {config.hidden_size}"
        )

    print("\nThe same base model by what its 12 layers share (paper, table 4):")
    base = AlbertConfig.named("albert_base_v2")
    for sharing in ("all", "attention", "ffn", "none"):
        config = dataclasses.replace(base, parameter_sharing=sharing)
        print(f"  {sharing:10} {count(config):>11,}")

    print("\nOne forward pass of albert_base_v2 with random weights:")
    model = AlbertPretrainer(base)
    rng = np.random.default_rng(0)
    tokens = {
        "input_ids": rng.integers(5, base.vocab_size, (2, 64)).astype("int32"),
        "input_mask": np.ones((2, 64), "int32"),
        "segment_ids": np.repeat([[0, 1]], 32, axis=1)
        .repeat(2, axis=0)
        .astype("int32"),
        "masked_lm_positions": np.array([[5, 17, 40], [8, 9, 33]], "int32"),
    }
    begin = time.perf_counter()
    outputs = model(tokens)
    print(f"  2 x 64 tokens in {time.perf_counter() - begin:.2f} s")
    for name, value in outputs.items():
        shape = value.shape if name != "encoder_outputs" else f"{len(value)} layers"
        print(f"  {name:16} {shape}")


if __name__ == "__main__":
    main()
