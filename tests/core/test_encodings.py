"""Encodings of texts: marks, UTF-8, and what is assumed otherwise."""

from random import Random

import pytest

from jarvis_agent.core.encodings import certain_encoding, decode_text

NAMES = "name,city\nJosé,Málaga\nAnaïs,Orléans\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_certain_encoding_has_no_note(encoding: str) -> None:
    assert decode_text(NAMES.encode(encoding)) == (NAMES, [])


@pytest.mark.parametrize(
    ("encoding", "name", "text"),
    [
        ("cp1252", "Windows-1252", NAMES),
        ("cp1252", "Windows-1252", "Café"),
        ("cp1252", "Windows-1252", "Good morning. This is José's note from Köln: “buy bread”."),
        ("cp1252", "Windows-1252", "name,city,age\nZoë,Málaga,31\nAnaïs,Orléans,28\nJürgen,Köln,45\n"),
        ("cp1252", "Windows-1252", "word,x,y\n" + "rain,-1.5,2\n" * 900 + "não,0.5,1\nmás,1,2\nvocê,3,4\n"),
        ("cp1251", "Windows-1251", "Имя,Город\nИван,Москва\nОльга,Казань\n"),
        ("cp1250", "Windows-1250", "Zażółć gęślą jaźń. Dziękuję bardzo."),
        ("gb18030", "GB18030", "姓名,城市\n王小明,北京\n张伟,上海\n"),
        ("big5", "Big5", "姓名,城市\n王小明,臺北\n陳大文,高雄\n"),
        ("hz", "HZ-GB-2312", "今天天气很好, we go out.\n明天下雨。\n"),
        ("cp932", "CP932", "氏名,住所\n田中太郎,東京都\n鈴木花子,大阪府\n"),
        ("cp949", "CP949", "안녕하세요. 오늘 날씨가 좋습니다."),
        ("cp1253", "Windows-1253", "όνομα,πόλη\nΓιώργος,Αθήνα\n"),
        ("cp1254", "Windows-1254", "İyi günler, şubeye ulaşamadım, lütfen geri arayın."),
        ("cp1255", "Windows-1255", "שם,עיר\nדוד,תל אביב\nרחל,חיפה\n"),
        ("koi8-r", "KOI8-U", "Имя,Город\nИван,Москва\nОльга,Казань\n"),
        ("cp866", "IBM866", "Список покупок: молоко, хлеб, сыр."),
        ("euc-jp", "EUC-JP", "こんにちは。明日は晴れるでしょう。"),
        ("gb18030", "GB18030", "姓名,城市\n王小明,北京\n" * 5000),
        ("utf-16-le", "UTF-16-LE", "The weather is fine."),
        ("utf-16-be", "UTF-16-BE", "The weather is fine."),
        ("utf-16-le", "UTF-16-LE", "今天天气很好,我们去公园散步吧。\n" * 3),
    ],
)
def test_other_encodings_are_assumed_with_a_note(encoding: str, name: str, text: str) -> None:
    assert decode_text(text.encode(encoding)) == (text, [f"the encoding {name} was assumed"])


def test_the_beginning_of_a_text_may_end_within_a_character() -> None:
    assert certain_encoding("né".encode()[:-1]) == "utf-8"


@pytest.mark.parametrize(
    "content", [b"\x00\x01\x02\xff" * 50, bytes(range(256)) * 8, Random(1).randbytes(4000)]
)
def test_bytes_that_are_no_text_are_refused(content: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        decode_text(content)


def test_damaged_characters_of_utf_8_are_replaced_with_a_note() -> None:
    text = "これは日本語のテキストです。" * 20
    content = text.encode() + b"\xff" + "終わり".encode()
    assert decode_text(content) == (f"{text}\ufffd終わり", ["damaged characters were replaced: 1"])
    mixed = "Jürgen,Köln\nZoé,Orléans\n".encode() + "François".encode("cp1252")
    assert decode_text(mixed)[0] == "Jürgen,Köln\nZoé,Orléans\nFran\ufffdois"
    assert decode_text(mixed + b"\n\xd2Stormy\xd3") == (
        "Jürgen,Köln\nZoé,Orléans\nFran\ufffdois\n\ufffdStormy\ufffd",
        ["damaged characters were replaced: 3"],
    )
    # Two letters of each word are valid UTF-8 by chance.
    thai = "จำนวน,89,จำนวน"
    assert decode_text(thai.encode("cp874")) == (thai, ["the encoding CP874 was assumed"])


def test_zero_bytes_at_the_end_are_no_text() -> None:
    for encoding in ("utf-8", "utf-16", "utf-32"):
        for count in (4, 6, 500):
            assert decode_text(NAMES.encode(encoding) + bytes(count)) == (NAMES, [])


def test_escape_sequences_of_other_encodings_are_no_utf_8() -> None:
    text = "これは日本語のテキストです。よろしくお願いします。"
    assert decode_text(text.encode("iso2022_jp"))[0] == text
