"""Which taps of a convolution a part of the output needs, and what is fetched for them."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from hpcbench.parallel.spatial.extents import Extent, Plan, Trimmed, Window, cut

from .whole import assert_split_is_whole


@given(
    st.builds(Window, *[st.integers(1, 5)] * 3, *[st.integers(0, 30)] * 2), st.integers(1, 24), st.integers(1, 5)
)  # fmt: skip
def test_taps_that_meet_the_tensor_are_kept_and_outer_ones_that_do_not_are_left_out(
    window: Window, size: int, parts: int
) -> None:
    trimmed = Trimmed(window, size)
    assume(trimmed.outputs(size) >= parts)
    for outputs in cut(trimmed.outputs(size), parts):
        taps = trimmed.taps(outputs)
        reads = [
            [place * window.stride - window.before + tap * window.dilation for place in range(*outputs)]
            for tap in range(window.kernel)
        ]
        useful = {tap for tap, places in enumerate(reads) if any(0 <= place < size for place in places)}
        assert 0 <= taps.start < taps.stop <= window.kernel
        assert useful <= set(range(*taps))
        if window.stride == 1 and useful:
            assert useful == set(range(*taps))
        used = [place for tap in range(*taps) for place in reads[tap]]
        assert trimmed.needs(outputs) == (min(used), max(used) + 1)


def test_a_dilation_as_wide_as_half_the_rows_is_not_fetched_for_in_the_middle() -> None:
    """DeepCAM's 18 on 24 rows over 4 ranks: inner ones reach beyond both edges, outer ones beyond one."""
    plan = Plan.of(24, 4, Trimmed(Window(3, dilation=18, before=18, after=18), 24))
    assert plan.need == (Extent(0, 24), Extent(6, 12), Extent(12, 18), Extent(0, 24))
    assert [plan.elements(rank) for rank in range(4)] == [18, 0, 0, 18]
    assert_split_is_whole(lambda: nn.Conv2d(2, 2, 3, padding=18, dilation=18), (2, 24, 3), {2: 4})


def test_where_no_part_reaches_another_nothing_is_fetched_at_all() -> None:
    plan = Plan.of(6, 3, Trimmed(Window(3, dilation=6, before=6, after=6), 6))
    assert plan.local
    assert_split_is_whole(lambda: nn.Conv2d(2, 2, 3, padding=6, dilation=6), (2, 6, 3), {2: 3})
