"""Times one pretraining step, side by side with other programs, and its memory.

A step is forward, backward and AdamW update, with the masked LM loss on 15 % of the
tokens and, where the program has one, the sentence loss. Each program runs in a process
of its own; they take turns, so that they meet the same machine, and the matrix product
peak is measured between their turns. Memory is the most of the whole process (Linux).
Programs that are not installed are left out. All that run on TensorFlow, and the peak,
have oneDNN, which this package turns on.

    python benchmarks/pretraining_step.py
    python benchmarks/pretraining_step.py --programs=albert_tf,kerashub --rounds=3
    python benchmarks/pretraining_step.py --model=albert_xlarge_v2 --shapes=2x512
"""

import argparse
import importlib.util
import resource
import statistics
import sys
import time

from turns import take_long_turns


def flop_per_token(model, length, picks):
    """Operations of forward and backward for one token.

    A matrix product costs two operations for each weight forward and four backward.

    Args:
        model: its name.
        length: tokens of a sequence.
        picks: whether the last layer computes the positions alone that a loss reads,
            as ours does. Its keys and values are those of all.
    """
    from albert_tf import AlbertConfig

    config = AlbertConfig.find(model)
    hidden, inner, layers = (
        config.hidden_size,
        config.intermediate_size,
        config.num_hidden_layers,
    )
    embedding, vocabulary = config.embedding_size, config.vocab_size
    of_all = 2 * hidden**2
    of_picked = 2 * hidden**2 + 2 * hidden * inner + 2 * length * hidden
    read = 0.15 + 1 / length if picks else 1
    blocks = layers * of_all + (layers - 1 + read) * of_picked
    masked_lm = 0.15 * embedding * (hidden + vocabulary)
    return 6 * (blocks + embedding * hidden + masked_lm)


POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}

PROGRAMS = {
    "albert_tf": "albert_tf",
    "kerashub": "keras_hub",
    "model_garden": "official",
    "huggingface": "transformers",
    "huggingface_compiled": "transformers",
}


MODEL = "albert_base_v2"


def random_batch(batch, length, model=MODEL, picks=0.15):
    """Returns a full batch of random tokens, as numpy arrays."""
    import numpy as np

    from albert_tf import AlbertConfig

    vocabulary = AlbertConfig.find(model).vocab_size
    rng = np.random.default_rng(0)
    masked = round(picks * length)
    positions = [rng.choice(length, masked, replace=False) for _ in range(batch)]
    return {
        "input_ids": rng.integers(5, vocabulary, (batch, length), dtype=np.int32),
        "input_mask": np.ones((batch, length), np.int32),
        "segment_ids": np.repeat([[0, 1]], length // 2, 1)
        .repeat(batch, 0)
        .astype("i4"),
        "masked_lm_positions": np.sort(positions).astype(np.int32),
        "masked_lm_ids": rng.integers(5, vocabulary, (batch, masked), dtype=np.int32),
        "masked_lm_weights": np.ones((batch, masked), np.float32),
        "next_sentence_labels": rng.integers(0, 2, batch, dtype=np.int32),
    }


def albert_tf_loss(model, batch):
    """Returns the sum of both losses of this package's model."""
    from albert_tf.model import heads

    outputs = model.logits(batch, training=True)
    masked_lm, _ = heads.masked_lm_loss(
        outputs["mlm_logits"], batch["masked_lm_ids"], batch["masked_lm_weights"]
    )
    sentence, _ = heads.classification_loss(
        outputs["sop_logits"], batch["next_sentence_labels"]
    )
    return masked_lm + sentence


def albert_tf_step(batch, precision, model=MODEL):
    """This package."""
    import keras
    import tensorflow as tf

    from albert_tf import AlbertConfig, AlbertPretrainer

    model = AlbertPretrainer(AlbertConfig.find(model), dtype=POLICIES[precision])
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


def kerashub_step(batch, precision, model=MODEL):
    """KerasHub's masked LM (it has no sentence head), without XLA: faster on CPU."""
    import keras
    import keras_hub

    from albert_tf import AlbertConfig

    config = AlbertConfig.find(model)
    keras.config.set_dtype_policy(POLICIES[precision])
    backbone = keras_hub.models.AlbertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        embedding_dim=config.embedding_size,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
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


def model_garden_step(batch, precision, model=MODEL):
    """Model Garden's encoder and BERT pretrainer, on tf_keras."""
    import tensorflow as tf
    import tf_keras
    from official.nlp.modeling import layers, models, networks

    from albert_tf import AlbertConfig

    config = AlbertConfig.find(model)
    tf_keras.mixed_precision.set_global_policy(POLICIES[precision])
    encoder = networks.AlbertEncoder(
        vocab_size=config.vocab_size,
        embedding_width=config.embedding_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        dict_outputs=True,
    )
    head = layers.ClassificationHead(config.hidden_size, 2, name="next_sentence")
    model = models.BertPretrainerV2(encoder, classification_heads=[head])
    inputs = {
        "input_word_ids": tf.constant(batch["input_ids"]),
        "input_mask": tf.constant(batch["input_mask"]),
        "input_type_ids": tf.constant(batch["segment_ids"]),
        "masked_lm_positions": tf.constant(batch["masked_lm_positions"]),
    }
    model(inputs)
    optimizer = tf_keras.optimizers.AdamW(1e-4)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = tf.reduce_mean(
                cross_entropy(
                    batch["masked_lm_ids"], tf.cast(outputs["mlm_logits"], "float32")
                )
            ) + tf.reduce_mean(
                cross_entropy(
                    batch["next_sentence_labels"],
                    tf.cast(outputs["next_sentence"], "float32"),
                )
            )
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    return lambda: float(step())


def huggingface_model(model=MODEL):
    """Hugging Face's model with both heads, without dropout."""
    import transformers

    from albert_tf import AlbertConfig

    values = AlbertConfig.find(model).to_dict() | {
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.0,
    }
    return transformers.AlbertForPreTraining(transformers.AlbertConfig(**values))


def huggingface_columns(batch):
    """Returns a batch by Hugging Face's names, as numpy arrays."""
    import numpy as np

    labels = np.full(batch["input_ids"].shape, -100)
    np.put_along_axis(labels, batch["masked_lm_positions"], batch["masked_lm_ids"], 1)
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["input_mask"],
        "token_type_ids": batch["segment_ids"],
        "labels": labels,
        "sentence_order_label": batch["next_sentence_labels"],
    }


def huggingface_step(batch, precision, model=MODEL, compiled=False):
    """Hugging Face's PyTorch model with both heads, in autocast for bfloat16."""
    import torch

    model = huggingface_model(model).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    inputs = {
        name: torch.tensor(column).long()
        for name, column in huggingface_columns(batch).items()
    }
    forward = torch.compile(model) if compiled else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = forward(**inputs).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def huggingface_compiled_step(batch, precision, model):
    """The same, compiled by PyTorch."""
    return huggingface_step(batch, precision, model, compiled=True)


def peak_step(precision):
    """The fastest of ALBERT-base's matrix products, for the share of the peak."""
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


PEAK_FLOP = 20 * 2 * 1024 * 768 * 3072


def serve(program, model, precision, batch, length):
    """Runs in a process of its own: times one step for each line read."""
    if program == "peak":
        step = peak_step(precision)
    else:
        rows = random_batch(batch, length, model)
        step = globals()[f"{program}_step"](rows, precision, model)
    step(), step()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        step()
        seconds = time.perf_counter() - begin
        kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # on Linux
        print(seconds, kibibytes / (1 << 20), flush=True)


def measure(programs, model, precision, batch, length, rounds):
    """Lets the programs take turns; returns seconds and GiB of each step by program."""
    command = [sys.executable, __file__, "--model", model, "--precision", precision]
    command += ["--batch", str(batch), "--length", str(length), "--serve"]
    return take_long_turns({name: [*command, name] for name in programs}, rounds)


def report(turns, model, batch, length, precision):
    """Prints tokens/s, the share of the peak, our speed over each peer's, and GiB."""
    seconds = {name: [turn[0] for turn in of_one] for name, of_one in turns.items()}
    peak = PEAK_FLOP / statistics.median(seconds["peak"])
    print(f"{model}, {batch} x {length}, {precision}, peak {peak / 1e9:.0f} GFLOP/s")
    ours = statistics.median(seconds.get("albert_tf", [float("nan")]))
    for program, times in seconds.items():
        if program == "peak":
            continue
        memory = turns[program][-1][1]
        speed = batch * length / statistics.median(times)
        flop = flop_per_token(model, length, picks=program == "albert_tf")
        share = speed * flop / peak
        ratio = statistics.median(times) / ours
        print(
            f"  {program:21} {speed:6.0f} tokens/s   {share:4.0%} of the peak   "
            f"albert_tf is {ratio:4.2f} times as fast   {memory:5.2f} GiB"
        )


def main():
    """Runs every shape and precision asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--model", default=MODEL, help="its name")
    parser.add_argument("--shapes", default="8x128,2x512", help="batch x length")
    parser.add_argument("--precisions", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=7, help="steps of each program")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--precision", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.model, args.precision, args.batch, args.length)
        return
    programs = ["peak"]
    for program in args.programs.split(","):
        if program not in PROGRAMS:
            parser.error(f"--programs: {program!r} is not one of {', '.join(PROGRAMS)}")
        if importlib.util.find_spec(PROGRAMS[program]):
            programs.append(program)
        else:
            print(f"{program}: not installed, left out")
    for shape in args.shapes.split(","):
        batch, length = map(int, shape.split("x"))
        for precision in args.precisions.split(","):
            sizes = batch, length
            turns = measure(programs, args.model, precision, *sizes, args.rounds)
            report(turns, args.model, *sizes, precision)


if __name__ == "__main__":
    main()
