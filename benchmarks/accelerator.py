"""Times a pretraining step on one accelerator: this package on JAX, and Hugging Face.

A step is the forward pass, the backward pass and the AdamW update, in bfloat16, on a
batch of random tokens. This package runs the step under one `jit`. PyTorch compiles
Hugging Face's model with fused attention. Each program runs in a process of its own.

The printed fraction of the peak is the speed of the step's matrix products, in FLOP/s,
over the speed of a product of two matrices of 8192 rows and columns, measured in the
same run. The product with the word table counts only for masked tokens.

    python benchmarks/accelerator.py
    python benchmarks/accelerator.py --model=albert_xxlarge_v2 --shapes=32x128,8x512
"""

import functools
import os
import tempfile
from pathlib import Path

import common
import pretraining_step

# Number of rows and of columns of the matrices in `peak`, and number of products.
PEAK_SIZE, PEAK_COUNT = 8192, 10


def albert_tf(batch, folder):
    """Returns a step of this package, on JAX."""
    import jax
    import keras

    from albert_tf import AlbertConfig, AlbertPretrainer

    config = AlbertConfig.find(str(folder / "config.json"))
    model = AlbertPretrainer(config, dtype=common.POLICIES["bfloat16"])
    optimizer = keras.optimizers.AdamW(1e-4)
    optimizer.build(model.trainable_variables)
    batch = {name: jax.numpy.asarray(value) for name, value in batch.items()}

    def loss_of(weights):
        pairs = zip(model.trainable_variables, weights, strict=True)
        with keras.StatelessScope(state_mapping=list(pairs)):
            return pretraining_step.albert_tf_loss(model, batch)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(weights, slots):
        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return loss, *optimizer.stateless_apply(slots, gradients, weights)

    weights = [variable.value for variable in model.trainable_variables]
    slots = [variable.value for variable in optimizer.variables]

    def step():
        nonlocal weights, slots
        loss, weights, slots = update(weights, slots)
        return float(loss)

    return step


def peak(batch, folder):
    """Returns a function that computes `PEAK_COUNT` matrix products, on JAX."""
    import jax

    shape = (PEAK_SIZE, PEAK_SIZE)
    keys = jax.random.split(jax.random.key(0))
    a, b = (jax.random.normal(key, shape, jax.numpy.bfloat16) for key in keys)

    @jax.jit
    def multiply(product):
        for _ in range(PEAK_COUNT):
            product = product @ b / PEAK_SIZE**0.5  # keeps the variance at 1
        return product

    return lambda: multiply(a).block_until_ready()


def huggingface(batch, folder):
    """Returns a step of Hugging Face's model, compiled, with fused attention."""
    return pretraining_step.huggingface_compiled_step(batch, "bfloat16", folder)


def main():
    """Prints the tokens per second of each shape and program."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--model", default="albert_base_v2", help="a name, or a file")
    parser.add_argument("--shapes", default="256x128,64x512", help="batch x length")
    parser.add_argument("--peak", type=float, help="FLOP/s; default: measured")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    os.environ["KERAS_BACKEND"] = "jax"
    for shape in args.shapes.split(","):
        rows, length = map(int, shape.split("x"))
        if args.program:  # the function with this name returns the step
            batch = common.random_batch(common.read_config(args.folder), rows, length)
            step = globals()[args.program](batch, args.folder)
            print(common.time_calls(step, args.steps))
            continue
        with tempfile.TemporaryDirectory() as name:
            config = common.write_config(Path(name), args.model)
            programs = ["albert_tf", "huggingface"]
            if args.peak is None:
                programs.append("peak")
            turns = common.run_in_turns(args, programs, Path(name), f"--shapes={shape}")
        results = {program: seconds for program, (seconds,) in turns.items()}
        peak_speed = args.peak or PEAK_COUNT * 2 * PEAK_SIZE**3 / results.pop("peak")
        print(f"{args.model}, {shape}, bfloat16, peak {peak_speed / 1e12:.0f} TFLOP/s")
        for program, seconds in results.items():
            selects = program == "albert_tf"
            flop = pretraining_step.flop_per_token(config, length, selects=selects)
            speed = rows * length / seconds
            share = speed * flop / peak_speed
            print(f"  {program:12}{speed:12,.0f} tokens/s {share:6.1%} of the peak")


if __name__ == "__main__":
    main()
