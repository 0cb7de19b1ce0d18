"""Progress: a bar on a terminal, a few plain lines elsewhere, silence when it is switched off."""

import io
import re
import subprocess
import sys

import pytest

from staging.progress import Progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_elsewhere_the_end_is_one_plain_line_with_count_rate_and_time() -> None:
    stream = io.StringIO()
    with Progress(100, "simulate", "samples", stream=stream) as progress:
        for _ in range(100):
            progress.advance(loss=0.5)
    assert re.fullmatch(r"simulate: 100/100 samples, \S+ samples/s, \d+\.\d s\n", stream.getvalue())


def test_elsewhere_lines_come_at_most_every_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("staging.progress.time.monotonic", lambda: now)
    stream = io.StringIO()
    with Progress(40, "train", "steps", stream=stream, interval_s=5) as progress:
        for _ in range(40):
            now += 0.5
            progress.advance(loss=0.123456, epoch=3)
    lines = stream.getvalue().splitlines()
    assert lines == [
        "train: 10/40 steps, 2 steps/s, 5.0 s  loss 0.1235  epoch 3",
        "train: 20/40 steps, 2 steps/s, 10.0 s  loss 0.1235  epoch 3",
        "train: 30/40 steps, 2 steps/s, 15.0 s  loss 0.1235  epoch 3",
        "train: 40/40 steps, 2 steps/s, 20.0 s",
    ]


def test_an_error_is_not_shown_as_an_end() -> None:
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), Progress(9, "copy", "files", stream=stream) as progress:  # noqa: PT012
        progress.advance(4)
        raise KeyboardInterrupt
    assert stream.getvalue().startswith("copy: 4/9 files, ")
    assert stream.getvalue().endswith(", stopped\n")


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_silence_when_switched_off(stream: io.StringIO) -> None:
    with Progress(3, "copy", "files", enabled=False, stream=stream) as progress:
        progress.advance(2)
    assert stream.getvalue() == ""
    assert progress.done == 2


def test_a_terminal_gets_a_bar_with_count_and_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    stream = Terminal()
    with Progress(3, "simulate", "samples", stream=stream) as progress:
        for _ in range(3):
            progress.advance(loss=0.5)
    shown = stream.getvalue()
    assert "\x1b[" in shown
    for part in ("simulate", "━", "3/3", "samples/s", "left", "loss 0.5"):
        assert part in shown


def test_rich_is_not_loaded_before_it_is_needed() -> None:
    script = (
        "import io, sys; from staging.progress import Progress\n"
        "with Progress(1, 'a', 'b', stream=io.StringIO()) as p: p.advance()\n"
        "sys.exit('rich' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
