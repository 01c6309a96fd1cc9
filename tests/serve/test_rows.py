"""The inputs from which `predict.py` reads rows."""

import gzip
import io
import types

import pytest
from helpers import refusal

from albert_tf.data.files import OTHER_ENCODING
from albert_tf.serve import rows
from albert_tf.serve.settings import PredictSettings

PAIR = {"text_a": False, "text_b": False}
ROWS = [{"text_a": "Grüße; a", "text_b": "b"}, {"text_a": "c", "text_b": "d"}]
LINES = [
    ("a.txt", "Grüße; a\tb\nc\td\n"),
    ("a.tsv", "Grüße; a\tb\r\nc\td\r\n"),
    ("a.txt", "Grüße; a\tb\rc\td\r"),
    ("a.jsonl", '{"text_a": "Grüße; a", "text_b": "b"}\n{"text_a":"c","text_b":"d"}\n'),
    ("a.json", '{"text_a": "Grüße; a", "text_b": "b"}\n{"text_a":"c","text_b":"d"}\n'),
    ("a.json", '[{"text_a": "Grüße; a", "text_b": "b"}, {"text_a":"c","text_b":"d"}]'),
    ("a.csv", "n,text_b,text_a\n1,b,Grüße; a\n2,d,c\n"),
    ("a.csv", 'text_a;text_b\n"Grüße; a";b\nc;d\n'),
]


def read(path, fields=PAIR, text_columns=(), **settings):
    config = PredictSettings(model="-", input_file=str(path), **settings)
    task = {"text_columns": text_columns} if text_columns else {}
    predictor = types.SimpleNamespace(fields=fields, task=task)
    log = io.StringIO()
    locations, found = zip(*rows.read(config, (), predictor, log), strict=True)
    return [*locations], [*found], log.getvalue()


@pytest.mark.parametrize(("name", "text"), LINES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "gz"])
def test_files_as_others_write_them(tmp_path, name, text, encoding):
    path = tmp_path / (f"{name}.gz" if encoding == "gz" else name)
    data = text.encode("utf-8" if encoding == "gz" else encoding)
    path.write_bytes(gzip.compress(data) if encoding == "gz" else data)
    named = {"encoding": encoding} if encoding == "cp1252" else {}
    places, found, _ = read(path, **named)
    assert found == ROWS
    number = "row 2" if name == "a.csv" or text.startswith("[") else "2"
    assert places[1] == f"{path}:{number}"


def test_a_csv_table_may_have_the_columns_of_the_training_data(tmp_path):
    path = tmp_path / "a.csv"
    columns = ["title", "body"]
    path.write_text("n,body,title\n1,b,Grüße; a\n2,d,c\n")
    assert read(path, text_columns=columns)[1] == ROWS
    path.write_text("text_a,text_b,body\nGrüße; a,b,x\nc,d,y\n")
    assert read(path, text_columns=columns)[1] == ROWS
    optional = {"text": False, "text_b": None}
    path.write_text("body,title\nx,a\n")
    assert read(path, optional, ["title"])[1] == [{"text": "a"}]


def test_the_encoding_is_named_and_blank_rows_of_json_are_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\tb\nM\xfcll\tb\n")
    message = f"{path}:2: not UTF-8 at byte 1 of the line{OTHER_ENCODING}"
    assert refusal(read, path) == message
    path = tmp_path / "a.json"
    path.write_text('\n"one"\n\n"two"\n')
    found = read(path, {"text": False})
    assert found[:2] == ([f"{path}:2", f"{path}:4"], ["one", "two"])
    assert found[2] == f"{path}: 2 blank lines skipped\n"
