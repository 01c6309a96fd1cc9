"""Whole words are masked in scripts with spaces, without, and right to left."""

import io
import random

import numpy as np
import pytest

from albert_tf import corpus
from albert_tf.corpus import CorpusSettings, manifest, shards, vocabulary
from albert_tf.data import records
from albert_tf.text import tokenization

CHINESE = (
    "我们 今天 去 图书馆 看书 。|他 昨天 在 北京 大学 学习 中文 。"
    "|老师 说 天气 很 好 。|学生 喜欢 中国 历史 和 音乐 。"
    "|公司 明年 在 上海 开 新 商店 。"
)
JAPANESE = (
    "私 は 東京 の 大学 で 日本語 を 勉強 して います 。"
    "|今日 は 天気 が とても いい です 。"
    "|先生 は 図書館 で 本 を 読みます 。|明日 友達 と 京都 へ 行きます 。"
)
ARABIC = (
    "ذهب الطالب إلى المدرسة صباح اليوم .|كتب المعلم الدرس على السبورة الجديدة ."
    "|تحب البنت قراءة الكتب القديمة في المكتبة .|يعمل المهندس في الشركة الكبيرة ."
)
MIXED = (
    "我 今天 用 laptop 写 report 。|Please 发 邮件 to the manager ."
    "|这个 weekend 我们 去 shopping 。|الطالب likes 中文 and music ."
)
TEXTS = {  # sentences, what stands between two words, and pieces
    "chinese": (CHINESE, "", 100),
    "japanese": (JAPANESE, "", 100),
    "arabic": (ARABIC, " ", 52),
    "code-mixed": (MIXED, " ", 60),
    "code-mixed without spaces": (MIXED, "", 100),
}


@pytest.fixture(scope="module", params=TEXTS)
def language(request, tmp_path_factory):
    """Writes a corpus of random sentences and trains a vocabulary on it."""
    folder = tmp_path_factory.mktemp(request.param)
    sentences, space, pieces = TEXTS[request.param]
    words = sorted(set(sentences.replace("|", " ").split()))
    draw = random.Random(3)
    documents = [
        "\n".join(
            space.join([*draw.choices(words, k=draw.randint(3, 9)), "."])
            for _ in range(draw.randint(2, 8))
        )
        for _ in range(300)
    ]
    (folder / "x.txt").write_text("\n\n".join(documents))
    vocabulary.train(
        "\n".join(documents).split("\n"),
        vocabulary.VocabularySettings(
            input_file=(), model_prefix=str(folder / "x"), vocab_size=pieces
        ),
    )
    config = CorpusSettings(
        input_file=(str(folder / "x.txt"),),
        output_file=(str(folder / "x.tfrecord"),),
        spm_model_file=str(folder / "x.model"),
        max_seq_length=64,
    )
    return request.param, config, tokenization.load(config.spm_model_file)


def test_masked_words_are_whole_words_of_the_script(language):
    name, config, tokenizer = language
    corpus.generate(config, io.StringIO())
    [file] = config.output_file
    numbers = manifest.read(file)["statistics"]
    assert numbers["documents"] == 300
    assert 0.13 < numbers["predicted_share"] < 0.16
    assert numbers["words_per_span"]["2"] > 30
    assert numbers["words_per_span"]["3"] > 10
    batches = list(records.dataset([file], shards.spec(config), batch_size=9999))
    batch = {key: np.concatenate([b[key] for b in batches]) for key in batches[0]}
    used = batch["masked_lm_weights"] > 0
    original = batch["input_ids"].copy()
    places = np.nonzero(used)[0], batch["masked_lm_positions"][used]
    original[places] = batch["masked_lm_ids"][used]
    masked = np.zeros(original.shape, bool)
    masked[places] = True
    words = masked_words(tokenizer, original, masked)
    assert len(words) > 200
    for pieces in words:
        shown = "".join(pieces)
        if name == "arabic":
            # A word with its mark, or a punctuation mark: never a part of a word.
            assert shown.startswith("▁") or shown == ".", shown
            assert "▁" not in shown[1:]
        if name in ("chinese", "japanese"):
            assert len(pieces) == 1 or shown.startswith("▁"), shown
        if "code-mixed" in name and any("a" <= c <= "z" for c in shown):
            assert name != "code-mixed" or shown.strip("▁") in MIXED.lower(), shown
            assert not any("一" <= c <= "龥" for c in shown), shown
    if name == "arabic":
        assert any(len(pieces) > 1 for pieces in words)


def masked_words(tokenizer, ids, masked):
    """Lists the masked words, each a list of pieces that are masked together.

    A masked piece that follows a masked one continues its word unless it begins one.
    """
    starts = tokenizer.word_starts()
    words = []
    for row, begins, hidden in zip(ids, starts(ids), masked, strict=True):
        cut = False
        for column in np.flatnonzero(hidden):
            piece = tokenizer.id_to_piece(row[column])
            if begins[column] or not hidden[column - 1]:
                # Truncation may have cut the first word of a segment.
                cut = row[column - 1] in tokenizer.special_ids
                words += [] if cut else [[piece]]
            elif not cut:
                words[-1].append(piece)
    return words


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_spaces_part_the_words_of_segmented_text(tmp_path, kind):
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
    config = CorpusSettings(
        input_file=(str(tmp_path / "x.txt"),),
        output_file=(str(tmp_path / "x.tfrecord"),),
        word_rule="spaces",
        objective="none",
        masked_lm_prob=0.0,
        dupe_factor=1,
        max_seq_length=128,
        num_workers=1,
        **vocabulary_file,
    )
    corpus.generate(config, io.StringIO())
    tokenizer = tokenization.load(**vocabulary_file)
    found = ""
    for batch in records.dataset(config.output_file, shards.spec(config), batch_size=9):
        for ids, mask, begins in zip(
            *(batch[k].numpy() for k in ("input_ids", "input_mask", "token_boundary")),
            strict=True,
        ):
            assert ids.max() < tokenizer.vocab_size
            for id, begin in zip(ids[mask == 1], begins[mask == 1], strict=True):
                if id not in (tokenizer.cls_id, tokenizer.sep_id):
                    piece = tokenizer.id_to_piece(int(id)).strip("▁")
                    found += " " * int(begin) + piece.replace("[UNK]", "。")
    assert sorted(found.split()) == sorted(text.split())  # records are shuffled
