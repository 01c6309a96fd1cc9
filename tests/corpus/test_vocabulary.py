import gzip
import random
import re
import signal
import subprocess
import sys
import time

import pytest
import sentencepiece
from helpers import ROOT, contents, refusal

from albert_tf import commands
from albert_tf.corpus import vocabulary
from albert_tf.errors import InputError
from albert_tf.text import tokenization

LINES = [
    f"The {animal} sat {place} (no. {number}), and Zoë's dog - in {number}, too."
    for number, animal in enumerate(["cat", "horse", "Owl", "mouse", "quick fox"], 1995)
    for place in ["on the mat", "under the oak", "by the river"]
]


def settings(folder, **changes):
    values = {"input_file": (), "model_prefix": str(folder / "own"), "vocab_size": 52}
    return vocabulary.VocabularySettings(**values | changes)


def pieces(folder):
    rows = (folder / "own.vocab").read_text(encoding="utf-8").splitlines()
    return [row.split("\t")[0] for row in rows]


def test_pieces_are_those_of_cleaned_text_after_the_released_special_ones(tmp_path):
    vocabulary.train(LINES, settings(tmp_path))
    special = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    symbols = ["(", ")", '"', "-", ".", "\u2013", "£", "€"]
    assert pieces(tmp_path)[:13] == special + symbols
    assert not set("TZOë") & set("".join(pieces(tmp_path)[13:]))
    tokenizer = tokenization.SentencePieceTokenizer(str(tmp_path / "own.model"))
    assert list(tokenizer.pieces) == pieces(tmp_path)
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id) == (0, 1, 4)
    # The form of SentencePiece's file.
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "own.model"))
    rows = (tmp_path / "own.vocab").read_text(encoding="utf-8").split("\n")
    assert (rows[0], rows[-1]) == ("<pad>\t0", "")
    assert float(rows[20].split("\t")[1]) == pytest.approx(model.get_score(20), 1e-5)
    vocabulary.train(LINES, settings(tmp_path, do_lower_case=False))
    learned = set("".join(pieces(tmp_path)[13:]))
    assert {"T", "Z", "O"} <= learned
    assert "ë" not in learned


def test_the_same_text_gives_the_same_bytes(tmp_path):
    for folder in (tmp_path / "a", tmp_path / "b"):
        vocabulary.train(LINES * 20, settings(folder, input_sentence_size=101))
    made = contents(tmp_path / "a")
    assert list(made) == ["own.model", "own.vocab"]
    assert contents(tmp_path / "b") == made


def test_long_lines_and_reserved_characters_are_learned_from(tmp_path):
    # SentencePiece alone skips a line for each of these three.
    long = "ø " * 2500
    lines = [*LINES, long, "ŋ▅ŋ", "þ\0þ"]
    vocabulary.train(lines, settings(tmp_path, character_coverage=1.0))
    assert {"ø", "ŋ", "þ"} <= set("".join(pieces(tmp_path)))


def test_the_largest_vocabulary_is_named_and_works(tmp_path):
    sample = settings(tmp_path, vocab_size=5000, input_sentence_size=101)
    message = refusal(vocabulary.train, LINES * 20, sample)
    assert "is too large for 101 lines of text: " in message
    message = refusal(vocabulary.train, LINES, settings(tmp_path, vocab_size=5000))
    pattern = (
        r"--vocab_size=5000 is too large for 15 lines of text: expected at most (\d+)"
    )
    largest = int(re.fullmatch(pattern, message)[1])
    assert not list(tmp_path.iterdir())
    vocabulary.train(LINES, settings(tmp_path, vocab_size=largest))
    assert len(pieces(tmp_path)) == largest


def test_the_smallest_vocabulary_is_named_and_works(tmp_path):
    message = refusal(vocabulary.train, LINES, settings(tmp_path, vocab_size=20))
    pattern = (
        r"--vocab_size=20 is too small for the characters of the text: expected at "
        r"least (\d+), or a lower --character_coverage than 0.99995"
    )
    smallest = int(re.fullmatch(pattern, message)[1])
    vocabulary.train(LINES, settings(tmp_path, vocab_size=smallest))
    assert len(pieces(tmp_path)) == smallest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_sentence_size": 7}, r"input_sentence_size\(\) > 100"),
        ({"user_defined_symbols": ("[", "[")}, r"\[ is already defined"),
    ],
)
def test_what_sentencepiece_refuses_is_one_line(tmp_path, changes, message):
    message = "^SentencePiece cannot train with these flags: .*" + message
    with pytest.raises(InputError, match=message):
        vocabulary.train(LINES, settings(tmp_path, **changes))


def test_an_error_while_reading_ends_the_training(tmp_path):
    def broken():
        yield from LINES
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        vocabulary.train(broken(), settings(tmp_path))
    assert not list(tmp_path.iterdir())


# Other messages about files: see test_documents.
@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b" \n\n", "--input_file={0}: no text in it"),
        (gzip.compress(b"text " * 99, mtime=0)[:-9],
         "{0}: Compressed file ended before the end-of-stream marker was reached; "
         "expected text, or a complete gzip file of text"),
    ],
)  # fmt: skip
def test_a_bad_file_is_named(contents, message, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(contents)
    own = settings(tmp_path, input_file=(str(path),))
    assert refusal(vocabulary.train_files, own) == message.format(path)


def test_the_files_are_read_as_the_generator_reads_them(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one\\ntwo"}\n{"text": "three"}\n')
    (tmp_path / "packed").write_bytes(gzip.compress(b"four\n"))
    (tmp_path / "x[1].txt").write_bytes(b"caf\xe9\n\nsix\n")
    names = [str(tmp_path / name) for name in ("a.jsonl", "packed", "x[1].txt")]
    own = settings(tmp_path, input_file=names, replace_invalid_utf8=True, vocab_size=29)
    vocabulary.train_files(own)
    learned = set("".join(pieces(tmp_path)))
    assert {"x", "w"} <= learned
    assert "{" not in learned


def test_an_unwritable_place_is_named_before_training(tmp_path):
    (tmp_path / "file").write_text("x")
    refused = refusal(vocabulary.train, iter(()), settings(tmp_path / "file"))
    assert refused == f"{tmp_path}/file/own.vocab: cannot be written: File exists"


def test_the_script_reads_globs_and_gzip(tmp_path, settings_of, capsys, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *given: None)
    (tmp_path / "1.txt").write_text("\ufeff" + "\n".join(LINES[:9]), encoding="utf-8")
    (tmp_path / "2.txt.gz").write_bytes(gzip.compress("\n".join(LINES[9:]).encode()))
    flags = [f"--input_file={tmp_path}/*.txt*", "--vocab_size=52"]
    flags.append(f"--model_prefix={tmp_path}/script/own")
    script = settings_of("train_sentencepiece.py", *flags)
    commands.find_command("vocabulary").main(*script)
    assert capsys.readouterr().out == f"{tmp_path}/script/own.model\n"
    vocabulary.train(LINES, settings(tmp_path / "library"))
    assert contents(tmp_path / "library") == contents(tmp_path / "script")


def test_ctrl_c_ends_the_script_and_its_trainer_at_once(tmp_path):
    draw = random.Random(0)
    words = ("".join(draw.choices("abcdefghij", k=7)) for _ in range(150_000))
    (tmp_path / "x.txt").write_text("\n".join(words))
    command = [
        *(sys.executable, "train_sentencepiece.py", "--vocab_size=9000"),
        *(f"--input_file={tmp_path}/x.txt", f"--model_prefix={tmp_path}/made/own"),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "made").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, log = process.communicate()  # whose pipe the trainer has, too
    assert process.returncode == -signal.SIGINT  # 130 in a shell
    assert log == ""
    assert not list((tmp_path / "made").iterdir())
