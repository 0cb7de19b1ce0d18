"""What stands in a script is what was meant, whatever its characters."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.batch.shell_quoting import check_text, check_variables, clock, expanded, quoted, time_s
from staging.errors import InputError

TEXTS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=30)


def said_by_bash(word: str) -> str:
    """The word as a program gets it."""
    command = ["bash", "-c", f"VALUE='a $b `c`'; printf %s {word}"]
    done = subprocess.run(command, capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    return done.stdout.decode()


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_a_quoted_word_reaches_a_program_as_it_is(text: str) -> None:
    assert said_by_bash(quoted(text)) == text


@settings(max_examples=60, deadline=None)
@given(TEXTS.filter(lambda text: "$" not in text), TEXTS.filter(lambda text: "$" not in text))
def test_variables_are_replaced_once_and_nothing_else(before: str, after: str) -> None:
    assert said_by_bash(expanded(f"{before}${{VALUE}}{after}")) == f"{before}a $b `c`{after}"


def test_an_unset_variable_is_empty_where_that_is_meant() -> None:
    done = subprocess.run(
        ["bash", "-uc", f"printf %s {expanded('$NOWHERE:x', unset=True)}"], capture_output=True, check=True
    )
    assert done.stdout == b":x"
    done = subprocess.run(["bash", "-uc", f"printf %s {expanded('$NOWHERE/x')}"], capture_output=True, check=False)
    assert b"unbound variable" in done.stderr


@pytest.mark.parametrize("text", ["a b", "a\nb", "x;y", "`x`", "$(x)", "$X", "'", '"', "a\\b", "<x>", "#x"])
def test_directives_hold_no_character_that_a_shell_or_scheduler_takes_for_more(text: str) -> None:
    with pytest.raises(InputError, match="has the character"):
        check_text("--queue", text)


@pytest.mark.parametrize("text", ["gpu&hbm80g", "[a|b]*2", "m1234_g", "system=polaris", "nvme,gpu", "ib&(a|b)"])
def test_words_of_schedulers_are_let_through(text: str) -> None:
    assert check_text("--constraint", text) == text


@pytest.mark.parametrize("text", ["$", "$(rm)", "a$-b", "${A", "${A:-x}", "$1"])
def test_only_names_are_replaced(text: str) -> None:
    with pytest.raises(InputError, match="begins no variable"):
        check_variables("--local-path", text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("01:30:00", 5400),
        ("90", 5400),
        ("90m", 5400),
        ("2h", 7200),
        ("1-00:00:01", 86401),
        ("365-00:00:00", 31_536_000),
        ("8760h", 31_536_000),
    ],
)
def test_times(text: str, seconds: int) -> None:
    assert time_s("--time", text) == seconds
    assert time_s("--time", clock(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "1:30", "x", "-5", "1.5h", "0", "00:00:00", "9" * 5000, "9" * 5000 + ":00:00"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InputError, match="--time"):
        time_s("--time", text)


@pytest.mark.parametrize("text", ["1:99:99", "01:60:00", "01:00:60"])
def test_minutes_and_seconds_are_below_60(text: str) -> None:
    with pytest.raises(InputError, match=rf"^--time \('{text}'\) must be .* with minutes and seconds below 60"):
        time_s("--time", text)


@pytest.mark.parametrize("text", ["99999999:00:00", "365-00:00:01", "8761h", "525601"])
def test_no_time_is_longer_than_a_year(text: str) -> None:
    with pytest.raises(InputError, match=rf"^--time \('{text}'\) must be at most 365 days; lower it$"):
        time_s("--time", text)
