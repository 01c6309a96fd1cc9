import concurrent.futures
import functools
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from helpers import DATA, ROOT, SMALL_MODEL, contents, refusal

from albert_tf import corpus
from albert_tf.corpus import documents, manifest, shards
from albert_tf.data import records
from albert_tf.data.files import lock_folder
from albert_tf.errors import InputError
from albert_tf.text import tokenization


def read(folder, files=("x.tfrecord",), **changes):
    """Reads the records that `make` made with the same changes of its settings."""
    values = {"input_file": ("x",), "output_file": ("y",), "vocab_file": "v"}
    config = corpus.CorpusSettings(**values, max_seq_length=128, **changes)
    spec, files = shards.make_spec(config), [str(folder / name) for name in files]
    batches = list(records.dataset(files, spec, batch_size=9999))
    return {
        name: np.concatenate([batch[name].numpy() for batch in batches])
        for name in spec
    }


def spell(ids):
    return " " + " ".join(map(str, ids)) + " "


@pytest.fixture
def small_shards(monkeypatch):
    """Makes a small corpus behave like a large one: many ranges, shards and windows."""
    monkeypatch.setattr(documents, "RANGE_BYTES", 4_500)
    monkeypatch.setattr(shards, "SHARD_BYTES", 25_000)
    monkeypatch.setattr(shards, "GROUP_TOKENS", 1_000)
    monkeypatch.setattr(shards, "ROUND_TOKENS", 2_000)
    monkeypatch.setattr(shards, "BLOCK_TOKENS", 500)
    monkeypatch.setattr(shards, "WINDOW_BYTES", 20_000)


def test_the_features_are_the_released_ones_and_hang_together(make):
    folder = make()
    batch = read(folder)
    made = ["spm_small.model", "x.tfrecord", "x.tfrecord.json"]
    assert list(contents(folder)) == made
    lengths = batch["input_mask"].sum(axis=1)
    columns = np.arange(128)
    np.testing.assert_array_equal(batch["input_mask"], columns < lengths[:, None])
    shown, ids = batch["input_ids"], batch["input_ids"].copy()
    rows, slots = np.nonzero(batch["masked_lm_weights"])
    columns_of_slots = batch["masked_lm_positions"][rows, slots]
    ids[rows, columns_of_slots] = batch["masked_lm_ids"][rows, slots]
    assert (shown != ids).any()
    assert not ids[batch["input_mask"] == 0].any()
    assert (ids[:, 0] == 2).all()
    assert (np.count_nonzero(ids == 3, axis=1) == 2).all()
    b_begins = (ids == 3).argmax(axis=1) + 1
    inside = (columns >= b_begins[:, None]) & (columns < lengths[:, None])
    np.testing.assert_array_equal(batch["segment_ids"], inside)
    starts = tokenization.load(SMALL_MODEL).word_starts()
    boundary = starts(ids) | (ids == 2) | (ids == 3)
    boundary[:, 1] = boundary[np.arange(len(ids)), b_begins] = True
    boundary &= columns < lengths[:, None]
    np.testing.assert_array_equal(batch["token_boundary"], boundary)


def test_both_halves_are_text_of_one_document_in_the_order_that_the_label_says(make):
    folder = make(masked_lm_prob=0.0, eval_fraction=0.2)
    tokenizer = tokenization.load(SMALL_MODEL)
    documents = []
    for lines in (DATA / "docs200.txt").read_text().split("\n"):
        if not lines.strip() or not documents:
            documents.append([])
        documents[-1] += tokenizer.encode(lines)
    texts = [spell(ids) for ids in documents]
    homes_of: dict[str, list[int]] = {}
    for name in ("x.tfrecord", "x.eval.tfrecord"):
        batch = read(folder, [name], masked_lm_prob=0.0)
        assert set(batch["next_sentence_labels"][:, 0].tolist()) == {0, 1}
        homes_of[name] = []
        for ids, label in zip(
            batch["input_ids"].tolist(), batch["next_sentence_labels"], strict=True
        ):
            a_end = ids.index(3)
            b_end = ids.index(3, a_end + 1)
            halves = [ids[1:a_end], ids[a_end + 1 : b_end]]
            first, second = map(spell, halves[::-1] if label else halves)
            homes = [
                i
                for i, document in enumerate(texts)
                if first in document
                and document.find(second, document.find(first) + len(first) - 1) >= 0
            ]
            assert homes
            homes_of[name] += homes if len(homes) == 1 else []
    train, held_out = homes_of["x.tfrecord"], {*homes_of["x.eval.tfrecord"]}
    assert held_out.isdisjoint(train)
    assert len(held_out) > 20
    order = np.corrcoef(train, np.arange(len(train)))[0, 1]
    assert abs(order) < 4 / np.sqrt(len(train))  # the records are shuffled


def test_one_seed_gives_one_result_and_another_gives_another(make, small_shards):
    make = functools.partial(make, dupe_factor=1)
    one, packed = make("one"), make("again", compress=True)
    other = contents(make("other", random_seed=2))["x.tfrecord"]
    data = (packed / "x.tfrecord").read_bytes()
    assert gzip.decompress(data) == contents(one)["x.tfrecord"] != other


def test_processes_make_the_bytes_that_one_process_makes(make, monkeypatch):
    monkeypatch.setattr(documents, "RANGE_BYTES", 4_500)
    monkeypatch.setattr(shards, "SHARD_BYTES", 25_000)
    changes = {"compress": True, "eval_fraction": 0.1, "dupe_factor": 1}
    one, two = make("one", **changes), make("two", num_workers=2, **changes)
    assert contents(one) == contents(two)


def test_the_description_counts_what_is_in_the_files(make, small_shards, tmp_path):
    names = tuple(str(tmp_path / "run" / name) for name in ("x@3", "y"))
    folder = make(output_file=names, eval_fraction=0.2)
    description = json.loads((folder / "x.json").read_text())
    batch = read(folder, description["files"])
    numbers = description["statistics"]
    shard_names = [f"x-0000{i}-of-00003" for i in range(3)]
    assert list(description["files"]) == [*shard_names, "y"]
    counts = [file["records"] for file in description["files"].values()]
    assert sum(counts) == numbers["instances"] == len(batch["input_ids"])
    assert min(counts) > 0.6 * max(counts)
    for name, file in description["files"].items():
        assert file["bytes"] == (folder / name).stat().st_size
    lengths = batch["input_mask"].sum(axis=1)
    assert numbers["instance_tokens"] == lengths.sum()
    assert numbers["mean_length"] == lengths.mean()
    predicted = batch["masked_lm_weights"].sum()
    assert numbers["predicted_share"] == predicted / lengths.sum()
    assert numbers["label_1_share"] == batch["next_sentence_labels"].mean()
    held_out = json.loads((folder / "x.eval.json").read_text())
    documents = numbers["documents"] + held_out["statistics"]["documents"]
    assert documents == 200
    assert held_out["statistics"]["documents"] == pytest.approx(40, abs=20)
    assert manifest.read(str(folder / "x-00002-of-00003")) == description
    assert manifest.read(str(folder / "y")) is None
    del description["vocabulary"]
    (folder / "x.json").write_text(json.dumps(description))
    with pytest.raises(InputError, match="damaged, or of another version"):
        manifest.read(str(folder / "x-00002-of-00003"))


def test_files_of_one_name_in_two_folders_are_two(make, tmp_path):
    names = tuple(str(tmp_path / folder / "x") for folder in ("run", "other"))
    folder = make(output_file=names)
    description = json.loads((folder / "x.json").read_text())
    assert list(description["files"]) == ["x", "../other/x"]
    for name, file in description["files"].items():
        assert file["bytes"] == (folder / name).stat().st_size


def test_duplicates_are_spread_over_the_whole_output(make, small_shards):
    folder = make(dupe_factor=20, masked_lm_prob=0.0)
    ids = read(folder, masked_lm_prob=0.0)["input_ids"]
    # Where the instances are that hold the first document's first three tokens.
    first = tokenization.load(SMALL_MODEL).encode(
        (DATA / "docs200.txt").read_text().split("\n")[1]
    )[:6]
    rows = enumerate(map(spell, ids.tolist()))
    at = np.array([i for i, row in rows if spell(first) in row]) / len(ids)
    assert at.size >= 15  # of twenty; some are cut off
    assert at.min() < 0.3
    assert at.max() > 0.7
    assert abs(at.mean() - 0.5) < 3 * np.sqrt(1 / 12 / at.size)


def test_unknown_pieces_are_unknown_in_the_records_of_released_behaviour(make):
    changes = {"released_behaviour": True, "do_lower_case": False}
    batch = read(make(masked_lm_prob=0.0, **changes), masked_lm_prob=0.0)
    ids, boundary = batch["input_ids"], batch["token_boundary"]
    assert not (ids == 4).any()
    # The vocabulary has no capital letters; those are most of what it does not know.
    assert 0 < boundary[ids == 1].mean() < 0.05


def test_a_finished_run_is_left_alone_until_a_file_has_gone(make):
    folder = make()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    make(log=(log := io.StringIO()))
    assert log.getvalue() == (
        f"{folder}/x.tfrecord.json: nothing to do, its files are complete\n"
    )
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    before = contents(folder)
    (folder / "x.tfrecord").unlink()
    make()
    assert contents(folder) == before
    assert refusal(make, ngram=2) == (
        f"{folder}/x.tfrecord.json is from a run with other settings (ngram was 3, is "
        f"now 2); delete it or choose another --output_file"
    )
    (folder / "x.tfrecord.json").write_text('{"of": "others"}')
    assert " is from a run with other settings (masked_lm_prob was" in refusal(make)


@pytest.mark.parametrize("is_longer", [False, True])
def test_text_of_another_size_or_time_is_read_again(make, tmp_path, is_longer):
    text, path = (DATA / "docs200.txt").read_bytes(), tmp_path / "text"
    changes = {"input_file": (str(path),), "eval_fraction": 0.1}
    path.write_bytes(text)
    first = contents(make(**changes))
    more = b"\n\none more\nof two lines\n" if is_longer else b""
    path.write_bytes(text.replace(b" the ", b" dog ") + more)
    again = contents(make(log=(log := io.StringIO()), **changes))
    assert log.getvalue().startswith(
        f"{tmp_path}/run/x.tfrecord.json: the text has changed; creating the files "
        f"again\n"
    )
    assert again["x.tfrecord"] != first["x.tfrecord"]


def killed(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"random_seed": 7},
        {"input_file": "text"},
    ],
)
def test_a_resumed_run_is_the_same(make, small_shards, monkeypatch, changes, tmp_path):
    if "input_file" in changes:
        file = tmp_path / "text"
        file.write_text((DATA / "docs200.txt").read_text() + "\none more\nline\n")
        changes = {"input_file": (str(file),)}
    make = functools.partial(make, dupe_factor=1)
    expected = contents(make("whole", **changes))
    with monkeypatch.context() as patch:
        patch.setattr(shards, "merge", killed)
        with pytest.raises(KeyboardInterrupt):
            make()
    folder = make(log=(log := io.StringIO()), **changes)
    line = "settings or text have changed" if changes else "shards: 5 of 5 resumed\n"
    assert line in log.getvalue()
    assert contents(folder) == expected


def test_two_runs_do_not_share_an_output(make, tmp_path):
    with (
        lock_folder(tmp_path / "run" / "x.tfrecord.work"),
        concurrent.futures.ThreadPoolExecutor() as pool,
        pytest.raises(InputError, match="another run"),
    ):
        pool.submit(make).result()


def start(output, stderr, *flags):
    """Starts the script in a process group of its own."""
    return subprocess.Popen(
        [
            *(sys.executable, f"{ROOT}/create_pretraining_data.py", *flags),
            *(f"--input_file={DATA}/docs200.txt", f"--output_file={output}"),
            *(f"--spm_model_file={SMALL_MODEL}", "--num_workers=2"),
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=stderr,
        text=True,
        start_new_session=True,
        # A shell starts what it runs in the background with the interrupt ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_until_gone(group):
    """Waits for the workers of a killed run, which must end by themselves."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.killpg(group, signal.SIGKILL)
    pytest.fail("workers outlived their run")


def test_after_kill_9_a_rerun_makes_the_same_bytes(tmp_path, make):
    expected = contents(make("whole", dupe_factor=30, max_seq_length=64))
    output = tmp_path / "killed" / "x.tfrecord"
    command = output, subprocess.DEVNULL, "--max_seq_length=64", "--dupe_factor=30"
    work = output.with_name("x.tfrecord.work")

    def is_killed_after(path):
        process = start(*command)
        while process.poll() is None and not list(output.parent.glob(path)):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
        wait_until_gone(process.pid)
        return killed and work.exists()

    # On a busy machine, a run may end before it is killed.
    for path in ("x.tfrecord.work", "x.tfrecord.work/train-*.json"):
        assert any(is_killed_after(path) for _ in range(5)), path
    assert start(*command).wait() == 0
    assert contents(output.parent) == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_and_its_workers_with_its_status(tmp_path, number):
    process = start(tmp_path / "x", subprocess.PIPE, "--dupe_factor=2000")
    while not list(tmp_path.glob("x.work/train-*.part*")):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, number)
    _, log = process.communicate()
    assert process.returncode == -number  # a shell reports 128 + number
    assert "Traceback" not in log
    wait_until_gone(process.pid)


TEXT = "one two\nthree four\n"
ONE_DOCUMENT = (
    "--input_file={0}/x: one document, and the second segment must come from another; "
    "expected a blank line between documents"
)


@pytest.mark.parametrize(
    ("text", "changes", "message"),
    [
        (" \n\n", {}, "--input_file={0}/x: no text in it"),
        (TEXT, {"objective": "nsp"}, ONE_DOCUMENT),
        (TEXT, {"released_behaviour": True}, ONE_DOCUMENT),
        (TEXT, {"eval_fraction": 0.999},
         "--eval_fraction=0.999: holds out all documents (1)"),
        ("a\n\nthe\n", {}, "--input_file={0}/x: all 6 segments are single words; "
         "expected sentences"),
        (TEXT, {"spm_model_file": None, "vocab_file": "{0}/vocab.txt"},
         "{0}/vocab.txt: the vocabulary has no piece '[MASK]'"),
        (TEXT, {"spm_model_file": None},
         "no vocabulary: expected --spm_model_file or --vocab_file"),
        (TEXT, {"output_file": ("{0}/x/y",)},
         "{0}/x/y: cannot be written: File exists"),
        (TEXT, {"output_file": ("{0}",)}, "{0}: expected the name of a file"),
        (TEXT, {"output_file": ("{0}/./x",)},
         "--output_file: {0}/./x is an input file, too"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(make, tmp_path, text, changes, message):
    (tmp_path / "x").write_text(text)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n")
    changes = json.loads(json.dumps(changes).replace("{0}", str(tmp_path)))
    if "output_file" in changes:
        changes["output_file"] = tuple(changes["output_file"])
    assert refusal(make, input_file=(f"{tmp_path}/x",), **changes) == message.format(
        tmp_path
    )


def test_odd_input_is_used_with_a_warning(make, tmp_path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "x").write_bytes(b"one two.\nthree \xff four.\n\n")
    changes = {"input_file": (f"{tmp_path}/empty", f"{tmp_path}/x")}
    changes |= {"replace_invalid_utf8": True, "eval_fraction": 0.01}
    make(log=(log := io.StringIO()), **changes)
    warnings = [line for line in log.getvalue().split("\n") if "warning" in line]
    assert warnings == [
        "warning: the input is one document of 3 lines, without a blank line",
        "warning: 1 lines have bytes that are not UTF-8",
        "warning: --eval_fraction=0.01: holds out no document of 1",
    ]
    make(log=(log := io.StringIO()), **changes)  # complete without files of "eval"
    assert "nothing to do" in log.getvalue()


def test_a_very_long_line_is_encoded_in_parts(make, tmp_path, monkeypatch):
    line = (DATA / "docs200.txt").read_text()[:30_000].replace("\n", " ")
    (tmp_path / "x").write_text(f"first\n{line}\n\nlast one\n")
    changes = {"input_file": (f"{tmp_path}/x",)}
    whole, sizes = contents(make("whole", **changes)), []
    encode = tokenization.SentencePieceTokenizer.encode_batch

    def note(self, texts, *arguments):
        sizes.extend(map(len, texts := list(texts)))
        return encode(self, texts, *arguments)

    monkeypatch.setattr(tokenization.SentencePieceTokenizer, "encode_batch", note)
    monkeypatch.setattr(documents, "_LINE_CHARS", 1000)
    assert contents(make("parts", **changes)) == whole
    assert 900 < max(sizes) <= 1000


def test_a_long_paragraph_is_cut_into_segments_at_words(make, tmp_path):
    words = " ".join(["brilliant parliament say that the wooden"] * 50)
    (tmp_path / "x").write_text(f"{words}\n\n{words}\n")
    folder = make(input_file=(f"{tmp_path}/x",), masked_lm_prob=0.0)
    numbers = json.loads((folder / "x.tfrecord.json").read_text())["statistics"]
    assert (numbers["lines"], numbers["lines_cut"]) == (3, 2)
    assert numbers["truncated_tokens"] < 0.3 * numbers["tokens"] * 3
    batch = read(folder, masked_lm_prob=0.0)
    starts = tokenization.load(SMALL_MODEL).word_starts()
    first = batch["input_ids"][:, 1]
    assert starts.begins_word[first].mean() > 0.5


def test_the_vocabulary_stands_beside_the_records(make, tmp_path):
    folder = make()
    content = json.loads((folder / "x.tfrecord.json").read_text())
    assert content["vocabulary_file"] == "spm_small.model"
    copied = folder / "spm_small.model"
    assert copied.stat().st_size > 1000
    # Another file of that name stays.
    copied.write_text("mine")
    make()
    assert copied.read_text() == "mine"
