"""The user's errors: one line, and whole after a trip between processes."""

import pickle
from collections.abc import Callable

import pytest

from staging.errors import DataError, EveryRankError, InputError
from staging.one_line import LONGEST, one_line


def test_a_message_says_where_what_and_what_to_change() -> None:
    assert str(DataError("a.h5", "is empty", "copy it again")) == "a.h5: is empty; copy it again"
    assert str(DataError("a.h5", "is empty")) == "a.h5: is empty"


def test_errors_survive_the_way_back_from_a_worker_process() -> None:
    for error in (DataError("a.h5", "is empty", "copy it again"), DataError("a.h5", "is empty"), InputError("no")):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error)
        assert str(back) == str(error)


@pytest.mark.parametrize(
    "make", [InputError, lambda text: DataError(text, text), lambda text: EveryRankError(text, True)]
)
def test_what_a_file_holds_makes_no_second_line_and_no_terminal_code(make: Callable[[str], InputError]) -> None:
    for text in ("two\nlines", "a\x1b[2Jb", "\ud800", "a\0b", "\u2028", "\x85"):
        message = str(make(text))
        assert message.isprintable()
        assert str(InputError(message)) == message
    assert len(str(make("[" * 100_000))) <= LONGEST
    assert len(str(make("\0" * 100_000))) <= LONGEST


def test_a_line_that_is_cut_has_its_start_and_its_end() -> None:
    assert one_line("é\t\udc80\x1b") == "é \\udc80\\x1b"
    assert one_line("start" + "x" * LONGEST + "end").startswith("startx")
    assert one_line("start" + "x" * LONGEST + "end").endswith("xend")
    assert one_line("x" * LONGEST) == "x" * LONGEST
