"""Whole words are masked in scripts with spaces, without, and right to left."""

import pytest

from albert_tf.corpus import vocabulary
from albert_tf.data import records
from albert_tf.text import tokenization

CHINESE = (
    "我们 今天 去 图书馆 看书 。|他 昨天 在 北京 大学 学习 中文 。"
    "|老师 说 天气 很 好 。|学生 喜欢 中国 历史 和 音乐 。"
    "|公司 明年 在 上海 开 新 商店 。"
)


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_spaces_part_the_words_of_segmented_text(tmp_path, generate, kind):
    text = CHINESE.replace("|", "\n")
    (tmp_path / "x.txt").write_text(text)
    if kind == "wordpiece":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        characters = sorted({*text} - {" ", "\n", "。"})  # which is unknown
        (tmp_path / "vocab.txt").write_text("\n".join([*special, *characters]))
        vocabulary_file = {"vocab_file": str(tmp_path / "vocab.txt")}
    else:
        prefix = str(tmp_path / "x")
        settings = vocabulary.VocabularySettings(
            input_file=(), model_prefix=prefix, vocab_size=60
        )
        vocabulary.train(text.split("\n"), settings)
        vocabulary_file = {"spm_model_file": f"{prefix}.model"}
    changes = {"word_rule": "spaces", "objective": "none", "masked_lm_prob": 0.0}
    changes |= {"spm_model_file": None, "dupe_factor": 1, **vocabulary_file}
    generate(tmp_path, input_file=(str(tmp_path / "x.txt"),), **changes)
    tokenizer = tokenization.load(**vocabulary_file)
    decoded = ""
    path = str(tmp_path / "x.tfrecord")
    for batch in records.dataset([path], records.features_of(path), batch_size=9):
        for ids, mask, begins in zip(
            *(batch[k].numpy() for k in ("input_ids", "input_mask", "token_boundary")),
            strict=True,
        ):
            assert ids.max() < tokenizer.vocab_size
            for id, begin in zip(ids[mask == 1], begins[mask == 1], strict=True):
                if id not in (tokenizer.cls_id, tokenizer.sep_id):
                    piece = tokenizer.id_to_piece(int(id)).strip("▁")
                    decoded += " " * int(begin) + piece.replace("[UNK]", "。")
    assert sorted(decoded.split()) == sorted(text.split())  # records are shuffled
