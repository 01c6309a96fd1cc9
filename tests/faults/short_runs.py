"""Short runs of the commands that write files, and what two of them must agree in."""

import contextlib
import io
import json
import zipfile
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"
DATA = FIXTURES / "earlier_version"
_MODEL = (
    f"--albert_config_file={DATA}/albert_config.json",
    f"--spm_model_file={DATA}/vocab.model",
)
_TRAINING = (
    "--train_batch_size=2",
    "--eval_batch_size=3",
    "--save_checkpoints_steps=1",
    "--keep_checkpoint_max=1",
)
_FINE_TUNING = (
    *_TRAINING,
    "--max_seq_length=32",
    "--do_train",
    "--do_eval",
    "--do_predict",
    "--num_train_steps=3",
    "--num_warmup_steps=1",
    "--eval_every_steps=2",
)
# Logs with times, pictures, and what TensorFlow numbers by what else a process made.
_DIFFERENT = {"checksums.json", "fingerprint.pb", "run.json", "saved_model.pb"}


def commands_of(folder: Path) -> dict[str, list[str]]:
    """Returns by its title what follows `albert-tf`; each writes to `folder` alone."""
    convert = ["convert", f"--input={DATA}/pretraining"]
    return {
        "corpus": [
            "corpus",
            f"--input_file={DATA}/text.txt",
            f"--output_file={folder}/train.tfrecord",
            f"--spm_model_file={DATA}/vocab.model",
            "--max_seq_length=16",
            "--max_predictions_per_seq=3",
            "--dupe_factor=3",
        ],
        "vocabulary": [
            "vocabulary",
            f"--input_file={FIXTURES}/docs200.txt",
            f"--model_prefix={folder}/vocab",
            "--vocab_size=300",
        ],
        "pretrain": [
            "pretrain",
            _MODEL[0],
            f"--input_file={DATA}/records/ordinary",
            f"--eval_input_file={DATA}/records/ordinary",
            f"--output_dir={folder}",
            *_TRAINING,
            "--num_train_steps=3",
            "--num_warmup_steps=1",
            "--eval_every_steps=2",
        ],
        "classify": [
            "classify",
            *_MODEL,
            "--task_name=custom",
            *(f"--{split}_file={DATA}/table.tsv" for split in ("train", "dev", "test")),
            f"--output_dir={folder}/run",
            f"--export_dir={folder}/export",
            *_TRAINING,
            "--max_seq_length=16",
            "--do_train",
            "--do_eval",
            "--do_predict",
            "--train_step=3",
            "--warmup_step=1",
            "--eval_every_steps=2",
        ],
        "tag": [
            "tag",
            *_MODEL,
            f"--train_file={FIXTURES}/tagging/train.txt",
            f"--eval_file={FIXTURES}/tagging/valid.txt",
            f"--predict_file={FIXTURES}/tagging/valid.txt",
            f"--output_dir={folder}",
            *_FINE_TUNING,
        ],
        "squad": [
            "squad",
            *_MODEL,
            f"--train_file={FIXTURES}/squad_own.json",
            f"--predict_file={FIXTURES}/squad_own.json",
            "--version_2_with_negative",
            "--max_query_length=8",
            "--doc_stride=8",
            f"--output_dir={folder}",
            *_FINE_TUNING,
        ],
        "race": [
            "race",
            *_MODEL,
            *(
                f"--{split}_file={FIXTURES}/race_own/RACE/dev/middle/all.txt"
                for split in ("train", "eval", "predict")
            ),
            "--max_qa_length=8",
            f"--output_dir={folder}",
            *_FINE_TUNING,
        ],
        "predict": [
            "predict",
            f"--model={DATA}/fine_tuned",
            f"--spm_model_file={DATA}/vocab.model",
            f"--input_file={DATA}/text.txt",
            f"--output_file={folder}/answers.jsonl",
        ],
        "convert to hf": [*convert, f"--output={folder}", "--output_format=hf"],
        "convert to tf1": [*convert, f"--output={folder}", "--output_format=tf1"],
        "convert to keras": [
            *convert,
            f"--output={folder}/model.keras",
            "--output_format=keras",
        ],
        "convert to onnx": [
            *convert,
            f"--output={folder}/model.onnx",
            "--output_format=onnx",
        ],
        "convert to litert": [
            *convert,
            f"--output={folder}/model.tflite",
            "--output_format=litert",
        ],
        "export": [
            "export",
            f"--albert_directory={DATA}/pretraining",
            f"--spm_model_file={DATA}/vocab.model",
            f"--export_path={folder}/hub",
        ],
    }


def call(title: str, folder: Path) -> tuple[int, str]:
    """Runs a command in this process; returns its exit status and errors."""
    import keras

    from albert_tf import commands

    keras.backend.clear_session()  # which numbers layers and what they make
    log = io.StringIO()
    arguments = commands_of(folder)[title]
    with contextlib.redirect_stderr(log), contextlib.redirect_stdout(io.StringIO()):
        try:
            commands.run(arguments[0], arguments)
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return code, log.getvalue()


def contents(folder: Path) -> dict[str, object]:
    """Returns what must be equal, by its name.

    That is all files but logs with times, pictures, and graphs, in which TensorFlow
    numbers functions by what else the process has made. What was evaluated twice, as
    after a kill, counts once.
    """
    return {
        path.relative_to(folder).as_posix(): _content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and path.name not in _DIFFERENT
        and path.suffix != ".png"
        and "tfevents" not in path.name
    }


def _content(path: Path) -> object:
    if path.name == "metrics.jsonl":
        lines = map(json.loads, path.read_text().splitlines())
        return {x["step"]: x.get("loss") for x in lines if x["kind"] == "eval"}
    if path.name == "eval_results.txt":
        return sorted(set(path.read_text().split("=" * 50 + "\n")))
    if path.suffix == ".keras":
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist()) - {"metadata.json"}  # with the time
            return {name: archive.read(name) for name in names}
    if path.parent.name == "variables" and path.suffix == ".index":
        import tensorflow as tf

        reader = tf.train.load_checkpoint(str(path.with_suffix("")))
        dtypes = reader.get_variable_to_dtype_map()
        # Left out: the graph, and seeds of dropout, which an export draws anew.
        names = [name for name, dtype in dtypes.items() if dtype.is_floating]
        return {name: reader.get_tensor(name).tobytes() for name in names}
    if path.parent.name == "variables":
        return None  # read with its index
    return path.read_bytes()
