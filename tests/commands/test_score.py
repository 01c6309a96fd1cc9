"""`albert-tf score`: predictions of SQuAD, and what does not fit."""

import json

import pytest

from albert_tf.commands import score
from albert_tf.errors import InputError
from albert_tf.tasks.settings.squad import ScoreSettings

ANSWERS = [{"text": "a fine film", "answer_start": 2}]
PARAGRAPH = {
    "context": "A a fine film.",
    "qas": [{"id": "x", "question": "What?", "answers": ANSWERS}],
}
DATA = {"version": "1.1", "data": [{"title": "T", "paragraphs": [PARAGRAPH]}]}


def test_answers_of_squad_are_scored_in_percent(tmp_path, capsys):
    data, path, output = (tmp_path / name for name in ("d.json", "p.json", "o.json"))
    data.write_text(json.dumps(DATA))
    path.write_text(json.dumps({"x": "fine film, the"}))
    score.main(ScoreSettings(data=str(data), output_file=str(output)), [str(path)])
    assert capsys.readouterr().out == "exact_match = 100\nf1 = 100\n"
    assert json.loads(output.read_text()) == {"exact_match": 100.0, "f1": 100.0}
    with pytest.raises(InputError, match=r"^0 files of predictions; expected one"):
        score.main(ScoreSettings(data=str(data)), [])
