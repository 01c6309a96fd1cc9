"""Compares the speed of a classifier's predictions with Hugging Face.

    python benchmarks/inference.py --input_file=sentences.txt --spm_model_file=30k.model
    python benchmarks/inference.py ... --num_layers=2 --rounds=1 --shapes=1x16,8x32

All programs have the same random weights, the same token ids and the same number of
threads. They run alternately, each in a process of its own. Each program first checks
that its outputs agree with Keras's, and runs two calls without timing. A shape such as
8x128 is a batch of 8 texts of 128 tokens. The last case is sentences of the file,
sorted by length.

The input of `savedmodel` and `predict` is text, which `predict` also sorts. The input
of the others is arrays of ids that are already sorted and padded. In programs with
`int8`, weights have 8 bits. Hugging Face's model is converted to ONNX with
`torch.onnx.export` and quantized with ONNX Runtime's `quant_pre_process` and
`quantize_dynamic`, with a scale per channel. This package computes the last layer only
for the first token. So a small --num_layers makes this package look faster than it is.
On a busy machine, use --num_threads=1.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from common import INPUTS, make_parser, run_in_turns, time_calls, write_config

LABELS = ["a", "b"]
# Maximum difference of logits from Keras's: in float32, and with int8 weights.
BOUND, BOUND_INT8 = 2e-5, 0.2


def prepare(args, folder):
    """Writes the texts, the model in each format, and Keras's logits for some texts."""
    import keras
    import numpy as np

    from albert_tf import AlbertConfig, weights
    from albert_tf.corpus import vocabulary
    from albert_tf.model import models
    from albert_tf.serve import runtimes, saved_models
    from albert_tf.tasks import text_graphs
    from albert_tf.text import inputs, tokenization
    from albert_tf.weights import metadata

    values = write_config(folder, args.model)
    if args.num_layers:
        values = write_config(folder, values | {"num_hidden_layers": args.num_layers})
    longest = values["max_position_embeddings"]
    tokenizer = tokenization.SentencePieceTokenizer(args.spm_model_file)
    lines = [x for x in vocabulary.read_lines((args.input_file,)) if x.strip()]
    # Words of one token each make texts of an exact length with [CLS] and [SEP].
    words = list(dict.fromkeys(word for line in lines[:2000] for word in line.split()))
    ids_of_words = tokenizer.encode_batch(words)
    words = [w for w, ids in zip(words, ids_of_words, strict=True) if len(ids) == 1]
    cases = {"probe": [lines[:3]]}
    for shape in args.shapes.split(","):
        rows, length = map(int, shape.split("x"))
        chosen = np.random.default_rng(length).choice(words, (rows, length - 2))
        cases[shape] = [[" ".join(row) for row in chosen]]
    texts = sorted(lines[: args.sentences], key=lambda x: len(tokenizer.encode(x)))
    size = args.batch_size
    cases["sentences"] = [texts[i : i + size] for i in range(0, len(texts), size)]
    (folder / "cases.json").write_text(json.dumps(cases))
    for case, batches in cases.items():
        for i, batch in enumerate(batches):
            encoded = inputs.encode(tokenizer, batch, None, longest)
            indices, length = range(len(encoded)), int(encoded.lengths.max())
            arrays: dict = inputs.pad(encoded, indices, length, tokenizer.pad_id)
            np.savez(folder / f"{case}-{i}.npz", **arrays)
    keras.utils.set_random_seed(1)
    config = AlbertConfig.find(str(folder / "config.json"))
    model = models.AlbertClassifier(config, len(LABELS))
    probe = dict(np.load(folder / "probe-0.npz"))
    np.save(folder / "logits.npy", np.asarray(model(probe)["logits"]))
    weights.save(model, folder / "huggingface", "hf")
    for name in args.programs.split(","):
        format, _, precision = name.partition("_")
        if format in runtimes.SUFFIXES:
            path = (folder / name).with_suffix(runtimes.SUFFIXES[format])
            runtimes.save(model, path, format, precision=precision or "float32")
    serving_fn = text_graphs.classifier(
        model, tokenizer, labels=LABELS, max_seq_length=longest
    )
    saved_models.export(serving_fn, folder / "savedmodel")
    task = {"kind": "classification", "labels": LABELS, "texts": 1}
    metadata.write(folder / "run", tokenizer, {**task, "max_seq_length": longest})
    weights.save(model, folder / "run", "tf1")


def load_savedmodel(args):
    """Returns this package's SavedModel, a function from texts to probabilities."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    loaded = tf.saved_model.load(str(args.folder / "savedmodel"))
    serve = loaded.signatures["serving_default"]
    return lambda texts, ids: serve(text=tf.constant(texts))["probabilities"].numpy()


def load_predictor(args):
    """Returns this package's `Predictor`, a function from texts to probabilities."""
    import numpy as np

    from albert_tf.serve import predict

    runtime: Any = "onnx" if args.program == "predict_onnx" else "tensorflow"
    options = predict.PipelineSettings(batch_size=args.batch_size, runtime=runtime)
    predictor = predict.load(args.folder / "run", options)

    def run(texts, ids):
        answers = predictor({"text": text} for text in texts)
        results = [answer["probabilities"] for answer in answers]
        return np.array([[result[label] for label in LABELS] for result in results])

    return run


def load_exported(args):
    """Returns this package's LiteRT or ONNX file, a function from ids to logits."""
    from albert_tf.serve import runtimes

    [path] = args.folder.glob(f"{args.program}.*")
    run = runtimes.load(path, args.num_threads)
    return lambda texts, ids: run(ids)["logits"]


def _load_torch_model(args):
    import transformers

    model_class = transformers.AlbertForSequenceClassification
    return model_class.from_pretrained(args.folder / "huggingface").eval()


def load_huggingface(args):
    """Returns Hugging Face's model in PyTorch, a function from ids to logits."""
    import torch

    torch.set_num_threads(args.num_threads)
    model = _load_torch_model(args)

    def run(texts, ids):
        batch = {n: torch.from_numpy(ids[key]).long() for n, key in INPUTS.items()}
        with torch.inference_mode():
            return model(**batch).logits.numpy()

    return run


def load_huggingface_onnx(args):
    """Returns Hugging Face's model in ONNX Runtime, a function from ids to logits."""
    import onnxruntime
    import torch

    path = args.folder / f"{args.program}.onnx"
    torch.onnx.export(
        _load_torch_model(args),
        (),
        str(path),
        kwargs=dict.fromkeys(INPUTS, torch.ones((2, 7), dtype=torch.long)),
        input_names=list(INPUTS),
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in INPUTS},
        dynamo=False,
    )
    if args.program.endswith("int8"):
        from onnxruntime import quantization
        from onnxruntime.quantization import shape_inference

        # Without this line, the kernels of all layers after the first stay in float32.
        shape_inference.quant_pre_process(path, path, skip_symbolic_shape=True)
        quantization.quantize_dynamic(path, path, per_channel=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.num_threads
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )

    def run(texts, ids):
        batch = {name: ids[key].astype("int64") for name, key in INPUTS.items()}
        return session.run(["logits"], batch)[0]

    return run


LOADERS = {
    "savedmodel": load_savedmodel,
    **dict.fromkeys(("predict", "predict_onnx"), load_predictor),
    **dict.fromkeys(("litert", "litert_int8", "onnx", "onnx_int8"), load_exported),
    "huggingface": load_huggingface,
    "huggingface_onnx": load_huggingface_onnx,
    "huggingface_onnx_int8": load_huggingface_onnx,
}


def time_program(args):
    """Checks the outputs of one program, and prints its seconds for each case."""
    import numpy as np

    takes_text = args.program in ("savedmodel", "predict", "predict_onnx")
    if takes_text:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(args.num_threads)
    run = LOADERS[args.program](args)
    cases = json.loads((args.folder / "cases.json").read_text())
    seconds = []
    for case, batches in cases.items():
        calls = [
            (texts, dict(np.load(args.folder / f"{case}-{i}.npz")))
            for i, texts in enumerate(batches)
        ]
        if case == "probe":
            results = run(*calls[0])
            logits = np.load(args.folder / "logits.npy")
            if takes_text:  # the results are probabilities: compare their logarithms
                results = np.log(results)
                logits = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            bound = BOUND_INT8 if args.program.endswith("int8") else BOUND
            np.testing.assert_allclose(results, logits, rtol=0, atol=bound)
            continue
        if args.program.startswith("predict"):  # it makes the batches itself
            calls = [([text for texts, _ in calls for text in texts], {})]

        def run_all(calls=calls):
            for texts, ids in calls:
                run(texts, ids)

        seconds.append(time_calls(run_all, 5))
    print(*seconds)


def main():
    """Prepares the models, runs the programs alternately, and prints the speeds."""
    parser = make_parser(__doc__)
    parser.add_argument("--input_file", required=True, help="one sentence per line")
    parser.add_argument("--spm_model_file", required=True)
    parser.add_argument("--model", default="albert_base_v2")
    parser.add_argument("--num_layers", type=int, help="default: the model's")
    parser.add_argument("--shapes", default="1x16,1x128,1x512,8x128")
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--num_threads", type=int, default=2)
    parser.add_argument("--programs", default=",".join(LOADERS))
    args = parser.parse_args()
    if args.program:
        time_program(args)
        return
    with tempfile.TemporaryDirectory() as name:
        prepare(args, Path(name))
        results = run_in_turns(args, args.programs.split(","), Path(name))
    for i, case in enumerate([*args.shapes.split(","), "sentences"]):
        count = args.sentences if case == "sentences" else int(case.split("x")[0])
        peers = [row[i] for name, row in results.items() if "huggingface" in name]
        print(f"\n{case}")
        for name, row in results.items():
            speedup = min(peers, default=float("nan")) / row[i]
            print(
                f"  {name:22}{count / row[i]:9.1f} sentences/s {row[i] * 1e3:9.2f} ms "
                f"{speedup:6.2f} x the fastest of Hugging Face's"
            )


if __name__ == "__main__":
    main()
