# Letters that look alike are the point of some strings.
# ruff: noqa: RUF001
import json
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from helpers import DATA, SHARED, SMALL_MODEL, refusal

from albert_tf.corpus import vocabulary
from albert_tf.errors import InputError
from albert_tf.text import tokenization

SENTENCEPIECE = json.loads((DATA / "tokenizer_sentencepiece.json").read_text())
WORDPIECE = json.loads((DATA / "tokenizer_wordpiece.json").read_text())
TEXTS = sorted({row[1] for row in SENTENCEPIECE["rows"]})


def write_vocabulary(folder, pieces):
    path = folder / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    return str(path)


def train_model(folder, lines, vocab_size, **changes):
    settings = vocabulary.VocabularySettings(
        input_file=(),
        model_prefix=str(folder / "own"),
        vocab_size=vocab_size,
        character_coverage=1.0,
        user_defined_symbols=(),
        **changes,
    )
    vocabulary.train(lines, settings)
    return str(folder / "own.model")


def train(folder, line, **changes):
    """Returns a tokenizer with the characters of a line as vocabulary."""
    characters = set(tokenization.clean_text(line)) - {" "}
    size = 6 + len(characters) + 256 * changes.get("byte_fallback", 0)
    model = train_model(folder, [line] * 9, size, **changes)
    return tokenization.SentencePieceTokenizer(model)


@pytest.fixture(scope="module")
def wordpiece_file(tmp_path_factory):
    return write_vocabulary(tmp_path_factory.mktemp("wordpiece"), WORDPIECE["vocab"])


@pytest.fixture(params=["sentencepiece", "wordpiece"])
def load(request, wordpiece_file):
    if request.param == "sentencepiece":
        return lambda lower=True: tokenization.load(SMALL_MODEL, None, lower)
    return lambda lower=True: tokenization.load(None, wordpiece_file, lower)


@pytest.fixture(scope="module")
def byte_tokenizer(tmp_path_factory):
    line = "the cat sat on the mat, and the dog sat too"
    return train(tmp_path_factory.mktemp("bytes"), line, byte_fallback=True)


def words(tokenizer, text):
    """Returns the words of a text, each as its pieces joined by "|"."""
    starts = tokenizer.word_starts()(np.array(tokenizer.encode(text)))
    groups = []
    for piece, begins in zip(tokenizer.tokenize(text), starts, strict=True):
        if begins or not groups:
            groups.append(piece)
        else:
            groups[-1] += f"|{piece}"
    return groups


def cuts(tokenizer, text):
    """Returns the part of the text of each piece."""
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    return [text[begin:end] for begin, end in offsets]


# Pieces and ids


@pytest.mark.parametrize("lower", [True, False])
def test_recorded_pieces_and_ids(lower, load):
    tokenizer = load(lower)
    rows, count = SENTENCEPIECE["rows"], 300
    if isinstance(tokenizer, tokenization.WordPieceTokenizer):
        rows, count = WORDPIECE["rows"], 129
    rows = [row for row in rows if row[0] == lower]
    assert len(rows) == count
    for _, text, cleaned, pieces, ids in rows:
        words = cleaned if isinstance(cleaned, str) else " ".join(cleaned)
        assert tokenizer.clean(text) == words
        assert tokenizer.tokenize(text) == pieces
        assert tokenizer.encode(text) == ids


@pytest.mark.skipif(not SHARED.is_dir(), reason="the official vocabulary is not here")
@pytest.mark.parametrize("lower", [True, False])
def test_the_official_vocabulary_gives_the_recorded_ids(lower):
    model = SHARED / "data" / "albert_vocab" / "30k-clean.model"
    tokenizer = tokenization.SentencePieceTokenizer(str(model), lower)
    golden = json.loads((SHARED / "golden" / "tokenizer.json").read_text())
    recorded = golden["models"]["official_30k"]
    for text, (lowered, cased, _) in zip(golden["strings"], recorded, strict=True):
        assert tokenizer.encode(text) == (lowered if lower else cased or lowered)["ids"]
    not_starts = json.loads((SHARED / "golden" / "masking.json").read_text())
    np.testing.assert_array_equal(
        np.flatnonzero(~tokenizer.word_starts("released").begins_word),
        not_starts["official_30k"]["not_start_piece_ids"],
    )


def test_batches_equal_single_texts(load):
    tokenizer = load()
    single = [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.encode_batch(iter(TEXTS)) == single
    assert tokenizer.encode_batch(TEXTS, num_threads=3) == single
    assert tokenizer.encode_batch([]) == []


def test_half_a_surrogate_pair_is_a_replacement_character(load):
    tokenizer = load()
    assert tokenizer.encode("the \ud83d") == tokenizer.encode("the \ufffd")
    assert cuts(tokenizer, "the \ud83d")[0] == "the"


def test_a_wordpiece_word_of_201_characters_is_unknown(tmp_path):
    path = write_vocabulary(tmp_path, ["[UNK]", "é", "##é"])
    tokenizer = tokenization.WordPieceTokenizer(path, do_lower_case=False)
    assert tokenizer.encode("é" * 200) == [1] + [2] * 199
    assert tokenizer.encode("é" * 201) == [0]


def test_workers_receive_the_same_tokenizer(load):
    tokenizer = load()
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert copy.fingerprint == tokenizer.fingerprint


# Accents

LANGUAGES = {
    "Ukrainian": "Її йогурт, мій ґанок: не иі, а йї",
    "Hindi": "हिन्दी में किताबें पढ़ना, ज़रूर",
    "Arabic": "العَرَبِيَّةُ لُغَةٌ قُرْآن",
    "Vietnamese": "Tiếng Việt có sáu thanh điệu, đặng ngọc",
    "Thai": "น้ำเป็นภาษาไทย เก่า เก้า",
    "Japanese": "かがみ がか はばぱ パン",
    "Korean": "한국어 각각",
    "Hebrew": "שָׁלוֹם עִבְרִית",
}


def train_on(folder, lines, **changes):
    """Trains the largest possible vocabulary on some lines; returns its path."""
    message = refusal(train_model, folder, lines, 9999, **changes)
    size = int(message.split("at most ")[1].split(",")[0])
    return train_model(folder, lines, size, **changes)


@pytest.fixture(scope="module")
def accents_file(tmp_path_factory):
    lines = list(LANGUAGES.values()) * 3
    return train_on(tmp_path_factory.mktemp("accents"), lines, keep_accents=True)


@pytest.mark.parametrize("language", LANGUAGES)
def test_accents_are_kept_and_compose(language, accents_file):
    text = LANGUAGES[language]
    tokenizer = tokenization.SentencePieceTokenizer(accents_file)
    assert tokenizer.keep_accents
    assert tokenizer.do_lower_case
    composed = unicodedata.normalize("NFKC", text.lower())
    assert "".join(tokenizer.tokenize(text)) == f"▁{composed}".replace(" ", "▁")
    ids = tokenizer.encode(text)
    assert tokenizer.unk_id not in ids
    for form in ("NFC", "NFD", "NFKD"):
        assert tokenizer.encode(unicodedata.normalize(form, text)) == ids


def test_marks_in_any_order_have_the_same_pieces(accents_file):
    tokenizer = tokenization.SentencePieceTokenizer(accents_file)
    forms = ["ệ", "ê\u0323", "ẹ\u0302", "e\u0302\u0323", "e\u0323\u0302"]
    pieces = [tokenizer.tokenize(f"Vi{form}t") for form in forms]
    assert pieces == [tokenizer.tokenize("việt")] * 5
    assert cuts(tokenizer, "đi\u0302\u0323u") == ["đ", "i\u0302\u0323", "u"]
    assert cuts(tokenizer, "ЙИ\u0306й") == ["Й", "И\u0306", "й"]


def test_as_released_marks_vanish_and_two_words_are_one():
    tokenizer = tokenization.SentencePieceTokenizer(SMALL_MODEL)
    assert not tokenizer.keep_accents
    assert tokenizer.clean("Їжак мій が") == "іжак міи か"


def test_flags_win_over_what_a_model_stores(accents_file, tmp_path):
    released = tokenization.load(accents_file, keep_accents=False)
    kept = tokenization.load(accents_file)
    assert released.encode("йї") == kept.encode("иі") == released.encode("иі")
    assert len({released.fingerprint, kept.fingerprint}) == 2
    assert kept.fingerprint == tokenization.load(accents_file, None, True).fingerprint
    assert tokenization.load(SMALL_MODEL, keep_accents=True).keep_accents
    cased = train_on(tmp_path, ["The Cat"] * 3, do_lower_case=False)
    assert tokenization.load(cased).tokenize("The") == ["▁", "T", "h", "e"]
    assert tokenization.load(cased, do_lower_case=True).clean("The") == "the"
    assert tokenization.load(cased).keep_accents is False


def test_a_released_model_stores_nothing(tmp_path):
    model = Path(train_on(tmp_path, ["The Cat"] * 3)).read_bytes()
    assert tokenization.read_stored_cleaning(model) == {}
    assert tokenization.add_cleaning(model, True, False) == model
    stored = tokenization.add_cleaning(model, False, True)
    cleaning = {"do_lower_case": False, "keep_accents": True}
    assert tokenization.read_stored_cleaning(stored) == cleaning
    # Other programs ignore the addition.
    load = sentencepiece.SentencePieceProcessor
    ids = [load(model_proto=each).encode("the cat") for each in (model, stored)]
    assert ids[0] == ids[1]


def test_wordpiece_keeps_accents_if_asked(tmp_path):
    path = write_vocabulary(tmp_path, ["[UNK]", "мій", "міи", "!"])
    assert tokenization.load(None, path).tokenize("Мій!") == ["міи", "!"]
    kept = tokenization.load(None, path, keep_accents=True)
    assert kept.tokenize("Мій!") == ["мій", "!"]
    assert cuts(kept, " Мій!") == ["Мій", "!"]
    assert kept.fingerprint != tokenization.load(None, path).fingerprint


# Offsets


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("spm", "", []),
        ("spm", " \t\n", []),
        # Collapsed spaces; a separate accent belongs to its letter.
        ("spm", "  The\t  cafe\u0301s ", ["The", "", "c", "a", "f", "e\u0301s"]),
        # One character, two pieces; a piece of two characters, one of them a ligature.
        ("spm", "½", ["", "½", "½", "½"]),
        # The rule adds a word mark, not a character.
        ("spm", "a5, is", ["a", "5", ",", "is"]),
        ("spm", "in 1997, is", ["in", "1997", ",", "is"]),
        # Characters that cleaning turns into spaces or deletes.
        ("spm", "the\u00b4is \u0301a \u200b the",
         ["the\u00b4", "is", "\u0301a", "the"]),
        ("words", "", []),
        ("words", "  UnWANTéd\u0301, 日本!",
         ["Un", "WANT", "éd\u0301", ",", "日", "本", "!"]),
        ("words", "caf\xadé Cafe\u0301s", ["caf\xadé", "Cafe\u0301", "s"]),
        ("words", "İs the", ["İs", "the"]),
        ("words", "a≠", ["a", "≠"]),
    ],
)  # fmt: skip
def test_offsets_worked_by_hand(kind, text, expected, wordpiece_file):
    files = (SMALL_MODEL, None) if kind == "spm" else (None, wordpiece_file)
    assert cuts(tokenization.load(*files), text) == expected


@pytest.mark.parametrize("lower", [True, False])
def test_offsets_cover_and_reproduce_every_word(load, lower):
    tokenizer = load(lower)
    hard = ["각 가\u11a8 한국어", "ةٌ \u202bשלם", "🇫🇷👍🏽 ❤️", "ﷺ ﷻ, ﬃx"]
    # WordPiece deletes these, and so joins the words around them, as released.
    joining = str.maketrans("\x0b\x0c\x1c\x1d\x1e\x1f\x85", " " * 7)
    for text in [text.translate(joining) for text in [*TEXTS, *hard]]:
        _, offsets = tokenizer.encode_with_offsets(text)
        assert offsets == sorted(offsets)
        assert [end for _, end in offsets] == sorted(end for _, end in offsets)
        end = 0
        for word in text.split():
            begin = text.index(word, end)
            end = begin + len(word)
            inside = [(b, e) for b, e in offsets if b < end and e > begin]
            if inside:
                assert text[inside[0][0] : inside[-1][1]] == word
                covered = {i for b, e in inside for i in range(b, e)}
                assert covered == set(range(begin, end))
            else:
                assert not tokenizer.tokenize(word) or set(word) == {"▁"}


def test_every_byte_of_a_character_spans_it(byte_tokenizer):
    assert cuts(byte_tokenizer, "at 😀é")[-6:] == ["", *["😀"] * 4, "é"]


# Words


def test_released_word_starts_equal_the_recorded_ones():
    tokenizer = tokenization.SentencePieceTokenizer(SMALL_MODEL)
    starts = tokenizer.word_starts("released")
    not_starts = np.flatnonzero(~starts.begins_word)
    np.testing.assert_array_equal(not_starts, SENTENCEPIECE["not_word_starts"])
    # In the release, a piece does not depend on the piece before it.
    ids = np.random.default_rng(0).integers(1500, size=(30, 99))
    np.testing.assert_array_equal(starts(ids), starts.begins_word[ids])


def test_unknown_pieces_that_begin_no_word_in_the_release_are_told_apart(load):
    tokenizer = load(False)
    texts = ["the cat", "aTH TΨ ~~ Δ-X"]
    first, second = tokenizer.encode_batch_as_released(texts)
    assert first == tokenizer.encode(texts[0])
    assert [1 if id == 4 else id for id in second] == tokenizer.encode(texts[1])
    if isinstance(tokenizer, tokenization.SentencePieceTokenizer):
        pieces = zip(tokenizer.tokenize(texts[1]), second, strict=True)
        unknown = {piece: id for piece, id in pieces if id in (1, 4)}
        assert unknown == {"TH": 4, "TΨ": 1, "~~": 4, "Δ": 1, "X": 4}
        starts = tokenizer.word_starts("released").begins_word
        assert starts[[1, 4]].tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我用python写", ["▁", "我", "用", "p|y|t|h|o|n", "写"]),
        ("これはpython", ["▁", "こ", "れ", "は", "p|y|t|h|o|n"]),
        ("人々hello", ["▁", "人|々", "h|e|l|l|o"]),
        ("コーヒーlover", ["▁", "コ|ー", "ヒ|ー", "l|o|v|e|r"]),
        ("ที่wifi", ["▁", "ท|\u0e35", "w|i|f|i"]),
        ("二\u3007年10月", ["▁", "二", "\u3007", "年", "1|0", "月"]),
        ("(word)", ["▁", "(", "w|o|r|d", ")"]),
        ("e-mail@home", ["▁|e", "-", "m|a|i|l", "@", "h|o|m|e"]),
        ("don't 'tis", ["▁|d|o|n|'|t", "▁|'|t|i|s"]),
        ("don\u2019t", ["▁|d|o|n|\u2019|t"]),
        ("كتب،hello", ["▁|ك|ت|ب", "،", "h|e|l|l|o"]),
    ],
)
def test_letters_after_punctuation_or_an_ideograph_are_a_word(text, expected, tmp_path):
    tokenizer = train(tmp_path, text)
    assert words(tokenizer, text) == expected


def test_byte_pieces_stay_with_an_ideograph(tmp_path):
    tokenizer = train(tmp_path, "用a ab", byte_fallback=True)
    assert words(tokenizer, "用😀a") == ["▁", "用|<0xF0>|<0x9F>|<0x98>|<0x80>|a"]


def test_chinese_and_kana_wordpiece_characters_are_words(tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "东", "京", "た", "##わ", "##ー", "go", "##od"]
    tokenizer = tokenization.WordPieceTokenizer(write_vocabulary(tmp_path, pieces))
    assert words(tokenizer, "东京good たわー 北") == (
        ["东", "京", "go|##od", "た", "##わ|##ー", "[UNK]"]
    )
    assert not tokenizer.word_starts().begins_word[[0, 2]].any()
    assert tokenizer.word_starts("released").begins_word.tolist() == [True] * 6 + (
        [False, False, True, False]
    )


def test_special_and_byte_pieces_begin_no_word(byte_tokenizer):
    starts = byte_tokenizer.word_starts().begins_word
    byte_ids = [byte_tokenizer.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    assert not starts[byte_ids].any()
    assert not starts[sorted(byte_tokenizer.special_ids)].any()


# Vocabularies


def test_special_ids_are_found_by_name(load):
    tokenizer = load()
    names = [tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
    assert [tokenizer.id_to_piece(id) for id in names] == ["[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.special_ids == {0, 1, *names}
    assert (tokenizer.pad_id, tokenizer.unk_id) == (0, 1)
    assert tokenizer.piece_to_id("no such piece") == tokenizer.unk_id


def test_a_model_with_other_special_ids_works(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat"] * 9),
        model_prefix=str(tmp_path / "other"),
        vocab_size=20,
        hard_vocab_limit=False,
        unk_id=2,
        bos_id=0,
        eos_id=1,
        pad_id=-1,
        control_symbols=["[SEP]"],
        minloglevel=2,
    )
    model = str(tmp_path / "other.model")
    tokenizer = tokenization.SentencePieceTokenizer(model)
    assert tokenizer.unk_id == 2
    assert tokenizer.encode("🎉")[-1] == 2
    assert tokenizer.special_ids == {2, tokenizer.sep_id}
    with pytest.raises(InputError) as error:
        _ = tokenizer.pad_id
    assert str(error.value) == f"{model}: the vocabulary has no piece '<pad>'"
    with pytest.raises(InputError, match=r"no piece '\[CLS\]'"):
        _ = tokenizer.cls_id


def test_fingerprint_tells_files_and_casing_apart(load, wordpiece_file):
    prints = {load(True).fingerprint, load(False).fingerprint}
    prints |= {tokenization.load(SMALL_MODEL).fingerprint}
    prints |= {tokenization.load(None, wordpiece_file).fingerprint}
    assert len(prints) == 3
    assert load(True).fingerprint == load(True).fingerprint


def test_a_tokenizer_needs_a_file():
    assert refusal(tokenization.load) == (
        "no vocabulary: expected --spm_model_file or --vocab_file"
    )


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (None, ": No such file or directory; expected a vocabulary"),
        (b"[UNK]\ncaf\xe9\n", ":2: not UTF-8 at byte 3 of the line"),
        (b"[UNK]\na\nb\na\n", ":4: repeats the piece 'a' of line 2"),
        (b"a\nb\n", ": the vocabulary has no piece '[UNK]'"),
    ],
)
def test_a_bad_wordpiece_file_is_named(contents, message, tmp_path):
    path = tmp_path / "vocab.txt"
    if contents is not None:
        path.write_bytes(contents)
    assert refusal(tokenization.WordPieceTokenizer, str(path)) == f"{path}{message}"


@pytest.mark.parametrize(
    "contents",
    ["\ufeff[UNK]\na\n", "[UNK]\na\n\n\n", "[UNK]\r\na\r\n\r\n", "\ufeff[UNK]\na"],
)
def test_a_byte_order_mark_and_empty_last_lines_are_no_pieces(contents, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(contents.encode())
    tokenizer = tokenization.WordPieceTokenizer(str(path))
    assert tokenizer.pieces == ("[UNK]", "a")
    assert tokenizer.encode("a b") == [1, 0]


def test_a_file_that_is_no_model_is_named(wordpiece_file):
    with pytest.raises(InputError, match=f"^{wordpiece_file}: .*; expected a Sentence"):
        tokenization.SentencePieceTokenizer(wordpiece_file)
