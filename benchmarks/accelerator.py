r"""Times a pretraining step on one accelerator: Keras on JAX, beside Hugging Face.

Forward, backward and AdamW update in bfloat16 under one `jit`, on a batch of random
tokens; Hugging Face's model is compiled by PyTorch, with its fused attention. The share
of the peak counts the matrix products that a step needs, the vocabulary's at the masked
tokens alone. Each program runs in a process of its own.

    python benchmarks/accelerator.py --peak=989e12
    python benchmarks/accelerator.py --peak=1e11 --models=small.json --shapes=2x16
"""

import argparse
import functools
import importlib.util
import os
import statistics
import subprocess
import sys
import time

from pretraining_step import (
    POLICIES,
    albert_tf_loss,
    flop_per_token,
    huggingface_columns,
    huggingface_model,
    random_batch,
)

PROGRAMS = {"albert_tf": "jax", "huggingface": "transformers"}


def main():
    """Prints the tokens a second of every model, shape and program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="albert_base_v2,albert_xxlarge_v2")
    parser.add_argument("--shapes", default="256x128,64x512", help="batch x length")
    parser.add_argument("--peak", type=float, required=True, help="FLOP a second")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--program", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["KERAS_BACKEND"] = "jax"
    for model in args.models.split(","):
        for shape in args.shapes.split(","):
            rows, length = map(int, shape.split("x"))
            if args.program:
                serve(args, model, rows, length)
            else:
                compare(args, model, shape)


def compare(args, model, shape):
    """Lets each program that is installed run alone on the accelerator."""
    length = int(shape.split("x")[1])
    print(f"{model}, {shape}, bfloat16")
    seconds: dict[str, float] = {}
    for program, package in PROGRAMS.items():
        if not importlib.util.find_spec(package):
            print(f"  {program}: not installed, left out")
            continue
        command = [sys.executable, *sys.argv, f"--program={program}"]
        command += [f"--models={model}", f"--shapes={shape}"]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            print(f"  {program}: {ended.stderr.strip().splitlines()[-1:]}")
            continue
        seconds[program] = float(ended.stdout.split()[-1])
        speed = int(shape.split("x")[0]) * length / seconds[program]
        flop = flop_per_token(model, length, picks=program == "albert_tf")
        print(f"  {program:12}{speed:12,.0f} tokens/s {speed * flop / args.peak:6.1%}")
    if len(seconds) == len(PROGRAMS):
        ours, peer = seconds.values()
        print(f"  albert_tf is {peer / ours:.2f} times as fast")


def serve(args, model, rows, length):
    """Prints the median seconds of a step, compilation left out."""
    step = globals()[f"{args.program}_step"](random_batch(rows, length, model), model)
    for _ in range(3):
        step()
    times = []
    for _ in range(args.steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    print(statistics.median(times))


def albert_tf_step(batch, model):
    """This package, on JAX."""
    import jax
    import keras

    from albert_tf import AlbertConfig, AlbertPretrainer

    model = AlbertPretrainer(AlbertConfig.find(model), dtype=POLICIES["bfloat16"])
    optimizer = keras.optimizers.AdamW(1e-4)
    optimizer.build(model.trainable_variables)
    batch = {name: jax.numpy.asarray(value) for name, value in batch.items()}

    def loss_of(weights):
        pairs = zip(model.trainable_variables, weights, strict=True)
        with keras.StatelessScope(state_mapping=list(pairs)):
            return albert_tf_loss(model, batch)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(weights, slots):
        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return loss, *optimizer.stateless_apply(slots, gradients, weights)

    state = [
        [variable.value for variable in model.trainable_variables],
        [variable.value for variable in optimizer.variables],
    ]

    def step():
        loss, *state[:] = update(*state)
        return float(loss)

    return step


def huggingface_step(batch, model):
    """Hugging Face's model, compiled, with PyTorch's fused attention."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = huggingface_model(model).to(device).train()
    model.set_attn_implementation("sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    inputs = {
        name: torch.tensor(column, dtype=torch.long, device=device)
        for name, column in huggingface_columns(batch).items()
        if name != "attention_mask"  # all ones, which would rule out fused attention
    }
    compiled = torch.compile(model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            loss = compiled(**inputs).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


if __name__ == "__main__":
    main()
