"""The user's errors: one line, and whole after a trip between processes."""

import pickle

from staging.errors import DataError, InputError


def test_a_message_says_where_what_and_what_to_change() -> None:
    assert str(DataError("a.h5", "is empty", "copy it again")) == "a.h5: is empty; copy it again"
    assert str(DataError("a.h5", "is empty")) == "a.h5: is empty"


def test_errors_survive_the_way_back_from_a_worker_process() -> None:
    for error in (DataError("a.h5", "is empty", "copy it again"), DataError("a.h5", "is empty"), InputError("no")):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error)
        assert str(back) == str(error)
