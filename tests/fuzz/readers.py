"""A harness and a strategy for each reader of the package's files.

An input is `{name: bytes}`, the files of a folder. `READERS` names the harnesses: each
reads a folder as a program would and compares what came out with what is in the files.
"""

import contextlib
import dataclasses
import functools
import io
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import mutations
import numpy as np
from absl import flags as absl_flags
from invariants import Broken, same

from albert_tf import commands, flags
from albert_tf.corpus import documents
from albert_tf.corpus.config import CorpusSettings
from albert_tf.data import records, tables
from albert_tf.data.tables import Column
from albert_tf.errors import InputError
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks import base, glue, squad
from albert_tf.tasks.race import reading as race
from albert_tf.tasks.squad import locating
from albert_tf.tasks.squad import reading as squad_reading
from albert_tf.tasks.tagging import reading as tagging
from albert_tf.text import tokenization
from albert_tf.weights import metadata

FIXTURES = Path(__file__).parents[1] / "fixtures"
EARLIER = FIXTURES / "earlier_version"


@dataclasses.dataclass(frozen=True)
class Reader:
    """A reader of files.

    Attributes:
        inputs: returns the strategy.
        read: raises InputError, or `Broken` where something is lost.
        share: inputs of a round; fewer where each takes long.
    """

    inputs: Callable[[], st.SearchStrategy]
    read: Callable[[Path], None]
    share: int = 100


def named(name, strategy):
    """Inputs of one file."""
    return strategy.map(lambda data: {name: data})


def only(folder):
    """Returns the one file of a folder."""
    [path] = folder.iterdir()
    return path


def beginning(path, size):
    """Returns the first whole lines of a fixture."""
    data = path.read_bytes()[:size]
    return data[: data.rfind(b"\n") + 1]


# --- configuration and task.json


def configs():
    small = (EARLIER / "albert_config.json").read_bytes()
    grouped = (FIXTURES / "model_grouped.config.json").read_bytes()
    files = st.sampled_from([small, grouped]).flatmap(mutations.json_file)
    return named("albert_config.json", files)


def read_config(folder):
    config = AlbertConfig.from_json_file(only(folder))
    again = AlbertConfig.from_dict(json.loads(config.to_json_string()))
    same("round trip", config, again)


_TASKS = (
    (EARLIER / "fine_tuned/task.json").read_text(),
    '{"kind": "regression", "task": "custom", "labels": null, "bounds": [0.0, 5.0],'
    '"label_separator": null, "texts": 2, "max_seq_length": 16, "do_lower_case": true,'
    '"keep_accents": false, "fingerprint": "ab", "vocabulary": "v.model"}',
    '{"kind": "squad", "version": "2.0", "max_seq_length": 32, "doc_stride": 8,'
    '"max_query_length": 8, "do_lower_case": true, "vocabulary": "v.model",'
    '"start_n_top": 5, "end_n_top": 5, "null_score_diff_threshold": 0.0,'
    '"n_best_size": 20, "max_answer_length": 30}',
    '{"kind": "race", "choices": 4, "max_seq_length": 32, "max_qa_length": 8,'
    '"do_lower_case": true, "vocabulary": "v.model"}',
    '{"kind": "tagging", "labels": ["O", "B-PER", "I-PER"], "max_seq_length": 32,'
    '"do_lower_case": false, "vocabulary": "v.model", "entities": true, "stride": 8}',
)


def task_files():
    files = st.sampled_from(_TASKS).flatmap(lambda t: mutations.json_file(t.encode()))
    return named("task.json", files)


@functools.cache
def _tokenizer():
    return tokenization.load(str(EARLIER / "vocab.model"))


@functools.cache
def _config():
    return AlbertConfig.from_json_file(EARLIER / "albert_config.json")


def read_task(folder):
    task = metadata.read_task(folder)
    kind = task.get("kind")
    families = base.families()
    if kind in families:
        path = folder / "task.json"
        made = families[kind].from_stored(task, _config(), _tokenizer(), path)
        description = json.loads(json.dumps(made.description))
        again = families[kind].from_stored(
            {**task, **description}, _config(), _tokenizer(), path
        )
        same("round trip", made.settings, again.settings)


# --- tables and data sets

_TABLE = (
    b'id\ttext\tlabel\n1\tA good one.\tyes\n2\tNo "good", n\xc3\xb6.\tno\n3\tx\tyes\n'
)
_ROWS = [{"id": 1, "text": "A", "label": "yes"}, {"id": "2", "text": "", "label": 0.5}]
_JSON_TABLE = "\n".join(map(json.dumps, _ROWS)).encode()
_COLUMNS = [
    Column("id", required=False),
    Column("text", may_be_empty=True),
    Column("label", "gold"),
]


def table_files():
    rows = mutations.lines(_TABLE) | mutations.damaged(_TABLE)
    cells = _TABLE.replace(b"\t", b",").replace(b'No "good", n', b'"No ""good"", n')
    commas = mutations.lines(cells, ",") | mutations.damaged(cells)
    objects = mutations.json_lines(_JSON_TABLE) | mutations.damaged(_JSON_TABLE)
    return st.one_of(
        named("a.tsv", rows),
        named("a.csv", commas),
        named("a.jsonl", objects),
        named("a.txt", rows),
    )


def read_table(folder):
    path = only(folder)
    data = path.read_bytes()
    table = tables.read(path, _COLUMNS, tuple, skip_bad_rows=True)
    rows = len(table.rows) + len(table.skipped)
    if path.suffix != ".csv":  # where a quote may take in lines
        header = path.suffix != ".jsonl"
        same("rows", data.count(b"\n") + (not data.endswith(b"\n")),
             rows + table.blank + header)  # fmt: skip
    if len("".join(table.notes(path)).split("\n")) > 1:
        raise Broken(f"message: several lines: {table.notes(path)}")
    if not table.skipped:
        same("round trip", table, tables.read(path, _COLUMNS, tuple))


def glue_files():
    names = ["CoLA/train.tsv", "MRPC/dev.tsv", "STS-B/train.tsv", "QQP/test.tsv"]
    data = {name: beginning(FIXTURES / "glue_own" / name, 900) for name in names}

    def damage(name):
        contents = data[name]
        files = mutations.lines(contents) | mutations.damaged(contents)
        return named(name.replace("/", "+"), files)

    return st.sampled_from(names).flatmap(damage)


def read_glue(folder):
    path = only(folder)
    name, _, split = path.stem.partition("+")
    [task] = (t for t in _GLUE if t.files["train"].startswith(f"{name}/"))
    task = dataclasses.replace(task, files={split: path.name})
    data = path.read_bytes()
    table = task.read(split, folder, skip_bad_rows=True)
    rows = len(table.rows) + len(table.skipped) + table.blank
    header = split not in task.headers
    same("rows", data.count(b"\n") + (not data.endswith(b"\n")), rows + header)
    if split != "test":
        targets = task.targets(table.rows)
        same("rows", len(table.rows), len(targets))


_GLUE = (glue.COLA, glue.MRPC, glue.STSB, glue.QQP)


def squad_files():
    whole = json.loads((FIXTURES / "squad_own.json").read_text())
    small = json.dumps({"version": "2.0", "data": whole["data"][:2]}).encode()
    ids = [
        q["id"] for a in whole["data"][:2] for p in a["paragraphs"] for q in p["qas"]
    ]
    answers = json.dumps(dict.fromkeys(ids, "1923")).encode()
    odds = json.dumps(dict.fromkeys(ids, -0.5)).encode()
    seeds = {"data.json": small, "answers.json": answers, "odds.json": odds}

    def damage(name):
        return mutations.json_file(seeds[name]).map(lambda data: {**seeds, name: data})

    return st.sampled_from(["data.json", "data.json", *seeds]).flatmap(damage)


def read_squad(folder):
    path = folder / "data.json"
    dataset = squad_reading.read(path)
    contents = json.loads(path.read_text("utf-8-sig"))
    asked = [q for a in contents["data"] for p in a["paragraphs"] for q in p["qas"]]
    same("rows", len(asked), len(list(dataset.questions)))
    with contextlib.suppress(InputError):
        locating.locate(dataset, _tokenizer())
    answers = folder / "answers.json"
    two = dataset.version == "2.0"
    odds = folder / "odds.json" if two else None
    scores = squad.evaluate_files(path, answers, null_odds_json=odds)
    for name, value in scores.items():
        if math.isnan(value):
            raise Broken(f"round trip: {name} is {value}")


_RACE = (
    '{"id": "a.txt", "article": "Tom ran.", "questions": ["Who _?", "Why?"],'
    '"options": [["Tom", "Ann"], ["x", "y"]], "answers": ["A", "B"]}',
    '{"id": "7", "article": "Tom ran.", "question": "Who?", "options": ["Tom", "Ann"],'
    '"answer": "B"}',
)


def race_files():
    both = "\n".join(_RACE[1:] * 2).replace('"7"', '"8"', 1).encode()
    return st.one_of(
        named("all.txt", mutations.json_file(_RACE[0].encode())),
        named("a.jsonl", mutations.json_lines(both) | mutations.damaged(both)),
    )


def read_race(folder):
    path = only(folder)
    questions = race.read_file(path)
    text, position, count = path.read_text("utf-8-sig"), 0, 0
    while (position := len(text) - len(text[position:].lstrip())) < len(text):
        value, position = json.JSONDecoder().raw_decode(text, position)
        count += len(value["questions"]) if "questions" in value else 1
    same("rows", count, len(questions))
    for question in questions:
        for number in range(len(question.options)):
            question.completed(number)


_CONLL = b"-DOCSTART- -X- O\n\nAnna NNP B-PER\nleft VBD O\nOslo NNP B-LOC\n\nYes UH O\n"
_TAGS = b'{"tokens": ["Anna", "left"], "tags": ["B-PER", "O"]}\n{"tokens": ["x"]}\n'


def conll_files():
    return st.one_of(
        named("a.txt", mutations.lines(_CONLL, " ") | mutations.damaged(_CONLL)),
        named("a.jsonl", mutations.json_lines(_TAGS) | mutations.damaged(_TAGS)),
    )


def read_conll(folder):
    path = only(folder)
    for scheme in ("iob2", "iob1"):
        try:
            sentences = tagging.read_file(path, tag_scheme=scheme)
        except InputError:
            if scheme == "iob1":
                raise
    rows = [row.decode() for row in path.read_bytes().split(b"\n")]
    rows = [row.removeprefix("\ufeff") for row in rows[:1]] + rows[1:]
    rows = [row.removesuffix("\r") for row in rows]
    if path.suffix == ".txt":
        words = 0
        for row in filter(str.strip, rows):
            cells = row.split("\t") if "\t" in row else row.strip(" ").split(" ")
            words += cells[0] != "-DOCSTART-"
        same("rows", words, sum(len(s.words) for s in sentences))
    else:
        same("rows", sum(bool(row.strip()) for row in rows), len(sentences))
    tagging.all_labels(sentences)


# --- records

_SPEC = {
    "ids": records.Feature("int", 5),
    "label": records.Feature("int", 1),
    "weights": records.Feature("float", 2),
}


def record_files():
    rows = {
        "ids": np.arange(15).reshape(3, 5) * 40,
        "label": np.arange(3)[:, None],
        "weights": np.ones((3, 2), np.float32),
    }
    encoded = records.encode(_SPEC, rows)
    values = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 200)
    features = st.fixed_dictionaries(
        {
            "ids": st.lists(values, max_size=6) | st.just([1] * 5),
            "label": st.lists(values, max_size=2) | st.floats() | st.binary(max_size=4),
            "weights": st.lists(st.floats(width=32), min_size=1, max_size=3),
        }
    )
    payloads = st.sampled_from(encoded).flatmap(mutations.damaged)
    payloads |= features.map(_example) | st.binary(max_size=20)
    mixed = st.lists(payloads | st.sampled_from(encoded), max_size=4)
    whole = b"".join(map(records.framed, encoded))
    files = mixed.map(lambda rows: b"".join(map(records.framed, rows)))
    packed = io.BytesIO()
    writer = records.Writer(packed, compress=True)
    writer.write(encoded)
    writer.finish()
    files |= mutations.damaged(whole) | mutations.damaged(packed.getvalue())
    return named("a.tfrecord", files)


def _example(features):
    import tensorflow as tf

    example = tf.train.Example()
    for name, value in features.items():
        feature = example.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        elif isinstance(value, list) and all(isinstance(v, int) for v in value):
            feature.int64_list.value.extend(value)
        else:
            value = value if isinstance(value, list) else [value]
            feature.float_list.value.extend(value)
    return example.SerializeToString()


def read_records(folder):
    import tensorflow as tf

    path = str(only(folder))
    records.features_of(path)
    records.check([path], _SPEC)
    limits = {"ids": 1 << 31, "label": 1 << 31}
    records.verify([path], _SPEC, limits)
    number = records.count(path)
    try:
        batches = list(records.dataset([path], _SPEC, batch_size=2))
    except tf.errors.OpError as error:
        raise Broken(
            f"rows: what was verified cannot be read: {error}"[:300]
        ) from error
    arrays = {name: np.concatenate([b[name] for b in batches]) for name in _SPEC}
    same("rows", number, len(arrays["ids"]))
    parsed = records.parser(_SPEC)(tf.constant(records.encode(_SPEC, arrays)))
    for name in _SPEC:
        same("round trip", arrays[name].tobytes(), parsed[name].numpy().tobytes())


# --- vocabularies and raw text

_PIECES = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\nn\nö\n,\n日\n##é\n"
_TEXT = "The nö 日本, 1997, naïve \u0000\u2028 ﷺ 😀  e\u0301"


def wordpiece_files():
    data = _PIECES.encode()
    return named("vocab.txt", mutations.lines(data, "\t") | mutations.damaged(data))


def _read_vocabulary(tokenizer):
    ids, spans = tokenizer.encode_with_offsets(_TEXT)
    same("rows", len(ids), len(spans))
    for begin, end in spans:
        if not 0 <= begin <= end <= len(_TEXT):
            raise Broken(f"round trip: span {begin}, {end}")
    same("round trip", ids, tokenizer.encode(_TEXT))
    tokenizer.decode(range(min(tokenizer.vocab_size, 99)))
    for rule in ("word_mark", "released"):
        tokenizer.word_starts(rule)(np.arange(min(tokenizer.vocab_size, 99)))


def read_wordpiece(folder):
    path = only(folder)
    tokenizer = tokenization.load(vocab_file=str(path))
    lines = path.read_bytes().decode().removesuffix("\n").split("\n")
    same("rows", len(lines), tokenizer.vocab_size)
    _read_vocabulary(tokenizer)


@st.composite
def _models(draw):
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((EARLIER / "vocab.model").read_bytes())
    for _ in range(draw(st.integers(1, 4))):
        i = draw(st.integers(0, max(0, len(proto.pieces) - 1)))
        kind = draw(st.integers(0, 8))
        if not proto.pieces:
            break
        piece = proto.pieces[i]
        if kind == 0:
            del proto.pieces[i]
        elif kind == 1:
            proto.pieces.append(piece)
        elif kind == 2:
            piece.piece = draw(mutations.texts())
        elif kind == 3:
            piece.score = draw(st.floats(width=32))
        elif kind == 4:
            piece.type = draw(st.integers(1, 6))
        elif kind == 5:
            name = draw(st.sampled_from(["unk", "bos", "eos", "pad"]))
            setattr(
                proto.trainer_spec, f"{name}_id", draw(st.integers(-2, 1 << 31 - 1))
            )
        elif kind == 6:
            proto.trainer_spec.model_type = draw(st.integers(1, 4))
        elif kind == 7:
            proto.normalizer_spec.precompiled_charsmap = draw(
                mutations.damaged(proto.normalizer_spec.precompiled_charsmap)
            )
        else:
            name = draw(
                st.sampled_from(["byte_fallback", "treat_whitespace_as_suffix"])
            )
            setattr(proto.trainer_spec, name, True)
    return proto.SerializeToString()


def sentencepiece_files():
    from sentencepiece import sentencepiece_model_pb2

    whole = (EARLIER / "vocab.model").read_bytes()
    proto = sentencepiece_model_pb2.ModelProto.FromString(whole)
    proto.normalizer_spec.ClearField("precompiled_charsmap")
    small = tokenization.with_cleaning(proto.SerializeToString(), False, True)
    return named("vocab.model", _models() | mutations.damaged(small))


def read_sentencepiece(folder):
    _read_vocabulary(tokenization.load(str(only(folder))))


_DOCUMENTS = (
    "One line of text. nö\nAnother line.\n\nA second document.\n 日本 \n\n\nx\n"
)
_JSON_TEXTS = b'{"text": "One.\\nTwo.\\n\\nThree."}\n\n{"text": "x", "id": 7}\n'


def raw_texts():
    import gzip

    data = _DOCUMENTS.encode()
    packed = gzip.compress(data, mtime=0)
    return st.one_of(
        named("a.txt", mutations.lines(data, " ") | mutations.damaged(data)),
        named("a.txt", st.text(max_size=60).map(str.encode) | st.binary(max_size=60)),
        named("a.txt.gz", mutations.damaged(packed)),
        named("a.jsonl", mutations.json_lines(_JSON_TEXTS)),
        named("a.jsonl", mutations.damaged(_JSON_TEXTS)),
    )


def read_raw_text(folder):
    path = only(folder)
    config = CorpusSettings(
        input_file=(str(path),), output_file=("x",), spm_model_file="x"
    )
    sizes = documents.find_files([str(path)])
    for errors in ("replace", "strict"):
        counts, made = Counter(), []
        for part, _ in documents.ranges(sizes):
            made += documents.read(part, errors, counts)
        segments = list(documents.tokenize(made, config, _tokenizer(), counts))
        same("rows", len(made), len(segments) + counts["documents_without_tokens"])
    if path.suffix == ".txt":
        text = path.read_bytes().decode()
        rows = [row.strip() for row in text.removeprefix("\ufeff").split("\n")]
        same("rows", [row for row in rows if row], [row for d in made for row in d])


# --- flags


@contextlib.contextmanager
def _parsed(command, arguments, folder):
    """Parses a command line as the command does, without running it."""
    old_flags, old_defined = absl_flags.FLAGS, flags._defined
    absl_flags.FLAGS, flags._defined = absl_flags.FlagValues(), []
    absl_flags.FLAGS["verbosity"] = old_flags["verbosity"]
    try:
        for settings in commands.module(command).SETTINGS:
            flags.define(settings)
        with contextlib.chdir(folder):
            rest = flags._parse([command, *arguments], "", {})
            yield [flags.read(settings) for settings in flags._defined], rest
    finally:
        absl_flags.FLAGS, flags._defined = old_flags, old_defined


@functools.cache
def _flags_of(command):
    names = {}
    for settings in commands.module(command).SETTINGS:
        for item in flags.fields(settings):
            names[item.name] = item
    return names


_REQUIRED = {
    "corpus": ["--input_file=a", "--output_file=b", "--spm_model_file=c"],
    "convert": ["--model=a", "--output=b"],
    "export": ["--export_path=a"],
    "score": ["--data=a"],
    "vocabulary": ["--input=a", "--model_prefix=b"],
    "predict": ["--model=a"],
    "squad": ["--output_dir=a"],
}
_VALUES = st.one_of(
    st.sampled_from(["", "0", "-1", "1", "1e309", "nan", "inf", "true", "no", "a,b"]),
    st.sampled_from(["9" * 5000, "1_000", "0x10", "1.5", "1e5", "\u0661", "--x", ","]),
    st.integers().map(str),
    st.floats().map(str),
    mutations.texts(),
)


@st.composite
def command_lines(draw):
    with_flags = [name for name in commands.COMMANDS if _flags_of(name)]
    command = draw(st.sampled_from(with_flags))
    names = sorted(_flags_of(command))
    arguments = list(_REQUIRED.get(command, []))
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(names))
        item = _flags_of(command)[name]
        value = draw(_VALUES | st.just(str(item.default)))
        kind = draw(st.integers(0, 15))
        if kind == 0:
            name = draw(mutations.texts())
        arguments.append(f"--{name}" if kind == 1 else f"--{name}={value}")
    kind = draw(st.integers(0, 9))
    made = {}
    if kind == 0:
        made["run.flags"] = "\n".join(arguments).encode()
        arguments = ["--flagfile=run.flags"]
    # Sources outside the input, and --help, are not what is tried here.
    arguments = [a for a in arguments if not a.lstrip("-").startswith(_NOT_TRIED)]
    line = "\0".join([command, *(a.replace("\0", "") for a in arguments)])
    if kind == 0:
        line = f"{command}\0--flagfile=run.flags"
    return {"command": line.encode(), **made}


_NOT_TRIED = ("flagfile", "config", "help", "?", "h=", "undefok")


def read_flags(folder):
    command, *arguments = (folder / "command").read_bytes().decode().split("\0")
    with _parsed(command, arguments, folder) as (groups, rest):
        values = [flags.values(group) for group in groups]
        same("rows", True, isinstance(rest, list))
    # What run.json stores makes the same run again.
    stored = {name: value for group in values for name, value in group.items()}
    _check_again(command, stored, values, folder)


def _check_again(command, stored, values, folder):
    path = folder.parent / "again.json"
    path.write_text(json.dumps({"flags": json.loads(json.dumps(stored))}))
    with _parsed(command, [f"--config={path}"], folder) as (groups, _):
        for before, group in zip(values, groups, strict=True):
            after = flags.values(group)
            for name, value in before.items():
                if value not in (None, ()) and repr(value) != repr(after[name]):
                    raise Broken(f"round trip: {name}={value!r}, {after[name]!r}")


_YAML = (
    "learning_rate: 1e-5\ntrain_batch_size: 8\ndo_train: true\noutput_dir: runs/a\n"
    "data_dir: data\ntask_name: custom\nlabels: [a, b]\nbounds: null\n"
)


def config_files():
    stored = {}
    for name, item in _flags_of("classify").items():
        if item.default not in (dataclasses.MISSING, None):
            stored[name] = item.default
    run = json.dumps({"task": "x", "flags": {**stored, "output_dir": "a"}}).encode()
    text = _YAML.encode()
    return st.one_of(
        named("run.yaml", mutations.lines(text, ": ") | mutations.damaged(text)),
        named("run.json", mutations.json_file(run)),
    )


def read_config_file(folder):
    path = only(folder)
    with _parsed("classify", [f"--config={path.name}"], folder) as (groups, _):
        values = [flags.values(group) for group in groups]
    stored = {name: value for group in values for name, value in group.items()}
    _check_again("classify", stored, values, folder)


# --- weights, and what stands beside them

_CHECKPOINT = "model.ckpt-best"


@functools.cache
def _vocabulary():
    """Returns a small SentencePiece model, without rules for characters."""
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString((EARLIER / "vocab.model").read_bytes())
    proto.normalizer_spec.ClearField("precompiled_charsmap")
    return proto.SerializeToString()


def _damage(files, how):
    """Damages one file of several, those of `how`: {name: function to a strategy}."""

    def one(name):
        return how[name](files[name]).map(lambda data: {**files, name: data})

    return st.sampled_from(sorted(how)).flatmap(one)


def _of_folder(folder, *names):
    return {name: (folder / name).read_bytes() for name in names}


def checkpoint_files():
    index, data = f"{_CHECKPOINT}.index", f"{_CHECKPOINT}.data-00000-of-00001"
    names = (index, data, "albert_config.json", "checkpoint")
    files = _of_folder(EARLIER / "fine_tuned", *names)
    damage = {
        index: mutations.index_file,
        data: mutations.damaged,
        "checkpoint": lambda text: mutations.lines(text, " "),
        "albert_config.json": mutations.json_file,
    }
    return _damage(files, damage) | _checkpoints(files)


@st.composite
def _checkpoints(draw, files):
    """Whole checkpoints of tensors that are gone, renamed or of another shape."""
    import tempfile

    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(EARLIER / "fine_tuned" / _CHECKPOINT))
    tensors = {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(tensors) or ["x"]))
        kind = draw(st.integers(0, 4))
        value = tensors.pop(name, np.zeros(2, "float32"))
        if kind == 1:
            tensors[draw(mutations.texts()) or "x"] = value
        elif kind == 2:
            sizes = draw(st.lists(st.integers(0, 5), max_size=4))
            tensors[name] = np.full(sizes, np.nan, "float32")
        elif kind == 3:
            types = ["int64", "float64", "float16", "bool", "complex64", "S3"]
            if value.dtype.kind == "S":
                value = np.zeros(value.shape)
            tensors[name] = value.astype(draw(st.sampled_from(types)))
        elif kind == 4:
            tensors[name] = np.full(value.shape, draw(st.floats(width=32)), "float32")
    if not tensors:
        return files
    with tempfile.TemporaryDirectory() as folder:
        prefix = f"{folder}/{_CHECKPOINT}"
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
        written = [path.name for path in Path(folder).iterdir()]
        return {**files, **_of_folder(Path(folder), *written)}


def hugging_face_files():
    files = _of_folder(FIXTURES / "huggingface", "config.json", "model.safetensors")
    damage = {
        "config.json": mutations.json_file,
        "model.safetensors": mutations.safetensors_file,
    }
    return _damage(files, damage)


def keras_files():
    members = {"json": mutations.json_file, "h5": mutations.h5_file}
    data = (EARLIER / "model.keras").read_bytes()
    return named("model.keras", mutations.zip_file(data, members))


@functools.cache
def _keras_hub():
    """Returns a preset of KerasHub."""
    import h5py

    from albert_tf.model import models
    from albert_tf.weights.names import expand

    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        for target in expand(models.AlbertEncoder(_config()), "kerashub"):
            file[target.name] = np.zeros(target.shape, "float32")
    config = {
        "vocabulary_size": 40,
        "embedding_dim": 4,
        "hidden_dim": 8,
        "num_layers": 1,
        "num_groups": 1,
        "num_heads": 2,
        "intermediate_dim": 8,
        "num_inner_repetitions": 1,
        "dropout": 0.0,
        "max_sequence_length": 32,
        "num_segments": 2,
    }
    whole = {"class_name": "AlbertBackbone", "config": config}
    return {
        "config.json": json.dumps(whole).encode(),
        "model.weights.h5": made.getvalue(),
    }


def keras_hub_files():
    damage = {
        "config.json": mutations.json_file,
        "model.weights.h5": mutations.h5_file,
    }
    return _damage(_keras_hub(), damage)


@functools.cache
def _saved_model():
    """Returns the files of a SavedModel that are read."""
    import tempfile

    import tensorflow as tf

    from albert_tf.model import models
    from albert_tf.serve import saved_models

    with tempfile.TemporaryDirectory() as folder:
        model = models.AlbertClassifier(_config(), 3)
        saved_models.save(tf.train.Checkpoint(), Path(folder, "a"), model=model)
        names = ("variables/variables.index", "assets/albert_config.json")
        names += ("variables/variables.data-00000-of-00001",)
        return {**_of_folder(Path(folder, "a"), *names), "saved_model.pb": b""}


def hub_files():
    damage = {
        "variables/variables.index": mutations.index_file,
        "variables/variables.data-00000-of-00001": mutations.damaged,
        "assets/albert_config.json": mutations.json_file,
    }
    return _damage(_saved_model(), damage)


def read_weights(folder):
    from albert_tf import weights
    from albert_tf.weights import loading
    from albert_tf.weights.names import expand

    path = folder / "model.keras" if (folder / "model.keras").exists() else folder
    source = weights.open_source(path)
    model = loading.model_for(source, source.config())
    report = weights.load(model, source, warn=False)
    same("rows", len(source.shapes), len(report.loaded) + len(report.unused))
    saved = weights.save(model, folder.parent / "saved.ckpt", format="tf1")
    again = weights.open_source(saved)
    before = {target.ours: target.value() for target in expand(model, "tf1")}
    weights.load(model, again, warn=False)
    for target in expand(model, "tf1"):
        if before[target.ours].tobytes() != target.value().tobytes():
            raise Broken(f"round trip: {target.ours}")


def folder_files():
    vocabulary = _vocabulary()
    (folder_task,) = _TASKS[:1]
    task = json.loads(folder_task)
    note = {"vocabulary": "vocab.model", "do_lower_case": True, "keep_accents": False}
    note["fingerprint"] = "0" * 64
    files = {
        "albert_config.json": (EARLIER / "albert_config.json").read_bytes(),
        "task.json": json.dumps(task).encode(),
        "vocab.model": vocabulary,
    }
    other = {**files, "vocabulary.json": json.dumps(note).encode()}
    del other["task.json"]
    damage = {
        "albert_config.json": mutations.json_file,
        "task.json": mutations.json_file,
        "vocab.model": mutations.damaged,
    }
    damage_other = {"vocabulary.json": mutations.json_file}
    return _damage(files, damage) | _damage(other, damage_other)


def read_folder(folder):
    from albert_tf.weights.folder import ModelFolder

    opened = ModelFolder(folder)
    task, tokenizer = opened.task, opened.tokenizer
    tokenizer.encode(_TEXT)
    families = base.families()
    if task.get("kind") in families:
        families[task["kind"]].from_stored(task, opened.config, tokenizer)


def description_files():
    records_of = EARLIER / "records"
    files = _of_folder(records_of, "ordinary", "ordinary.json")
    damage = {"ordinary.json": mutations.json_file, "ordinary": mutations.damaged}
    return _damage(files, damage)


def read_description(folder):
    from albert_tf.tasks import pretraining
    from albert_tf.tasks.settings.pretraining import PretrainingSettings

    for dynamic in (False, True):
        settings = PretrainingSettings(
            albert_config_file=str(EARLIER / "albert_config.json"),
            input_file=(str(folder / "ordinary"),),
            dynamic_masking=dynamic,
        )
        made = pretraining._Records(settings, "input_file", _config())
        made.tokenizer()
        made.source.verify()
        same("rows", records.count(str(folder / "ordinary")), len(made.source))


READERS = {
    "config": Reader(configs, read_config),
    "task": Reader(task_files, read_task),
    "table": Reader(table_files, read_table),
    "glue": Reader(glue_files, read_glue),
    "squad": Reader(squad_files, read_squad),
    "race": Reader(race_files, read_race),
    "conll": Reader(conll_files, read_conll),
    "records": Reader(record_files, read_records, 50),
    "wordpiece": Reader(wordpiece_files, read_wordpiece),
    "sentencepiece": Reader(sentencepiece_files, read_sentencepiece, 50),
    "raw_text": Reader(raw_texts, read_raw_text),
    "checkpoint": Reader(checkpoint_files, read_weights, 20),
    "hugging_face": Reader(hugging_face_files, read_weights, 20),
    "keras": Reader(keras_files, read_weights, 20),
    "keras_hub": Reader(keras_hub_files, read_weights, 20),
    "hub": Reader(hub_files, read_weights, 20),
    "folder": Reader(folder_files, read_folder, 50),
    "description": Reader(description_files, read_description, 30),
    "flags": Reader(command_lines, read_flags, 50),
    "config_file": Reader(config_files, read_config_file, 50),
}
