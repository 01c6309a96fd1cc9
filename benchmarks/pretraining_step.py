"""Compares the time and memory of a pretraining step with other programs.

A step is the forward pass, the backward pass and the AdamW update. The loss is the
masked LM loss of 15 % of the tokens, plus the sentence loss if the program has one. The
programs run alternately, each in a process of its own. The fraction of the peak is the
speed of the step's matrix products over the speed of the products in `peak_step`.

    python benchmarks/pretraining_step.py
    python benchmarks/pretraining_step.py --programs=albert_tf,kerashub --rounds=1
    python benchmarks/pretraining_step.py --model=albert_xlarge_v2 --shapes=2x512
"""

import functools
import resource
import tempfile
from pathlib import Path

import common

PROGRAMS = ("albert_tf", "kerashub", "huggingface", "huggingface_compiled")
# Operations of `peak_step`: 20 products, with two operations for each multiplication.
PEAK_FLOP = 20 * 2 * 1024 * 768 * 3072


def flop_per_token(config, length, selects):
    """Returns the operations of the forward and backward pass for one token.

    A matrix product needs two operations per weight forward, and four backward.

    Args:
        config: the model's config as a dict.
        length: number of tokens per sequence.
        selects: whether the last layer, except for its keys and values, computes only
            the positions that a loss reads, as in this package. These are the masked
            positions and the first one.
    """
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    layers, embedding = config["num_hidden_layers"], config["embedding_size"]
    keys_and_values = 2 * hidden**2
    # Queries and the attention's output layer, feed-forward, scores and their mixing.
    rest = 2 * hidden**2 + 2 * hidden * inner + 2 * length * hidden
    last_layer = 0.15 + 1 / length if selects else 1
    blocks = layers * keys_and_values + (layers - 1 + last_layer) * rest
    masked_lm = 0.15 * embedding * (hidden + config["vocab_size"])
    return 6 * (blocks + embedding * hidden + masked_lm)


def albert_tf_loss(model, batch):
    """Returns the sum of the two losses of this package's model."""
    from keras import ops

    from albert_tf.model import heads

    outputs = model.logits(batch, training=True)
    weights = batch["masked_lm_weights"]
    losses = heads.masked_lm_loss(outputs["mlm_logits"], batch["masked_lm_ids"])
    masked_lm = ops.sum(losses * weights) / ops.sum(weights)
    labels = batch["next_sentence_labels"][:, 0]
    sentence = heads.classification_loss(outputs["sop_logits"], labels)
    return masked_lm + ops.mean(sentence)


def albert_tf_step(batch, precision, folder):
    """Returns a step of this package."""
    import keras
    import tensorflow as tf

    from albert_tf import AlbertConfig, AlbertPretrainer

    config = AlbertConfig.find(str(folder / "config.json"))
    model = AlbertPretrainer(config, dtype=common.POLICIES[precision])
    optimizer = keras.optimizers.AdamW(1e-4)
    optimizer.build(model.trainable_variables)
    batch = {key: tf.constant(value) for key, value in batch.items()}

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = albert_tf_loss(model, batch)
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    return lambda: float(step())


def kerashub_step(batch, precision, folder):
    """Returns a step of KerasHub's masked LM, without XLA: on CPUs, XLA is slower."""
    import keras
    import keras_hub

    config = common.read_config(folder)
    keras.config.set_dtype_policy(common.POLICIES[precision])
    backbone = keras_hub.models.AlbertBackbone(
        vocabulary_size=config["vocab_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        embedding_dim=config["embedding_size"],
        hidden_dim=config["hidden_size"],
        intermediate_dim=config["intermediate_size"],
        dropout=0.0,
    )
    model = keras_hub.models.AlbertMaskedLM(backbone, preprocessor=None)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.AdamW(1e-4),
        jit_compile=False,
    )
    inputs = {
        "token_ids": batch["input_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["segment_ids"],
        "mask_positions": batch["masked_lm_positions"],
    }
    return lambda: model.train_on_batch(inputs, batch["masked_lm_ids"])


def huggingface_step(batch, precision, folder, compiled=False):
    """Returns a step of Hugging Face's PyTorch model with both heads."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = common.huggingface_model(folder, "AlbertForPreTraining").to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    inputs = {
        name: torch.tensor(column, device=device)
        for name, column in common.huggingface_columns(batch).items()
        if name != "attention_mask"  # all ones; it would prevent fused attention
    }
    forward = torch.compile(model) if compiled else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
            loss = forward(**inputs).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


huggingface_compiled_step = functools.partial(huggingface_step, compiled=True)


def peak_step(batch, precision, folder):
    """Returns a function that computes ALBERT-base's fastest matrix products."""
    import tensorflow as tf

    a = tf.cast(tf.random.normal((1024, 768)), precision)
    b = tf.cast(tf.random.normal((768, 3072)), precision)
    c = tf.cast(tf.random.normal((3072, 768)), precision)

    @tf.function
    def step():
        x = a
        for _ in range(10):
            x = tf.matmul(tf.matmul(x, b), c) * tf.cast(1e-3, precision)
        return tf.reduce_sum(x)

    return lambda: float(step())


def report(results, args, shape, precision, config):
    """Prints speed, fraction of the peak, speedup of this package, and memory.

    `results` is {program: [seconds of a step, peak memory in GiB]}.
    """
    rows, length = map(int, shape.split("x"))
    peak = PEAK_FLOP / results.pop("peak")[0]
    print(f"{args.model}, {shape}, {precision}, peak {peak / 1e9:.0f} GFLOP/s")
    base, _ = results.get("albert_tf", (float("nan"), 0))
    for program, (seconds, gib) in results.items():
        speed = rows * length / seconds
        flop = flop_per_token(config, length, selects=program == "albert_tf")
        print(
            f"  {program:21} {speed:6.0f} tokens/s   {speed * flop / peak:4.0%} of the "
            f"peak   albert_tf is {seconds / base:4.2f} times as fast   {gib:5.2f} GiB"
        )


def main():
    """Runs the programs alternately for each shape and precision."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--model", default="albert_base_v2", help="a name, or a file")
    parser.add_argument("--shapes", default="8x128,2x512", help="batch x length")
    parser.add_argument("--precisions", default="float32,bfloat16")
    parser.add_argument("--steps", type=int, default=5, help="in each turn")
    args = parser.parse_args()
    if args.program:
        # `run_in_turns` has set one shape and one precision.
        rows, length = map(int, args.shapes.split("x"))
        batch = common.random_batch(common.read_config(args.folder), rows, length)
        step = globals()[f"{args.program}_step"](batch, args.precisions, args.folder)
        seconds = common.time_calls(step, args.steps)
        kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # on Linux
        print(seconds, kibibytes / (1 << 20))
        return
    programs = ["peak", *args.programs.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = common.write_config(folder, args.model)
        for shape in args.shapes.split(","):
            for precision in args.precisions.split(","):
                flags = f"--shapes={shape}", f"--precisions={precision}"
                results = common.run_in_turns(args, programs, folder, *flags)
                report(results, args, shape, precision, config)


if __name__ == "__main__":
    main()
