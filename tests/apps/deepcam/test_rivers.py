"""Rivers carry vapour along their path, in balance with the pressure field."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from apps.deepcam.rivers import River, add_river, draw_rivers

RIVER = River(
    lat=22.0, lon=160.0, delta_lat=25.0, delta_lon=50.0, meander=1.0, half_width_m=260e3, jet=18.0, moisture=18.0,
    rain_mm_per_day=30.0,
)  # fmt: skip


def along_path(field, grid, river):
    lats, lons = river.path()
    rows = ((lats + 90) / 180 * grid.height).astype(int)
    columns = (lons % 360 / 360 * grid.width).astype(int)
    return field[torch.from_numpy(rows), torch.from_numpy(columns)][10:38]


@pytest.mark.parametrize("latitude", [22.0, -22.0])
def test_wind_blows_poleward_and_eastward_along_the_river(grid, calm, latitude):
    river = replace(RIVER, lat=latitude)
    add_river(calm, grid, river)
    u, v = along_path(calm.u850, grid, river), along_path(calm.v850, grid, river)
    assert bool((u > 0).all())
    assert bool((v * np.sign(latitude) > 0).all())
    assert 0.8 * river.jet < float(torch.hypot(u, v).median()) <= river.jet


def test_transport_is_several_times_that_outside(grid, calm):
    calm.u850 += 4.0
    outside = float((torch.hypot(calm.u850, calm.v850) * calm.q).median())
    add_river(calm, grid, RIVER)
    inside = along_path(torch.hypot(calm.u850, calm.v850) * calm.q, grid, RIVER)
    assert float(inside.min()) > 3 * outside
    assert float(along_path(calm.tmq, grid, RIVER).median()) > 30 + 0.5 * RIVER.moisture


@pytest.mark.parametrize("latitude", [22.0, -22.0])
def test_low_pressure_lies_poleward_of_the_jet(grid, calm, latitude):
    river = replace(RIVER, lat=latitude, meander=0.0)
    add_river(calm, grid, river)
    lats, lons = river.path()
    middle = len(lats) // 2
    column = int(lons[middle] % 360 / 360 * grid.width)
    poleward, equatorward = (
        float(calm.psl[int((lats[middle] + step + 90) / 180 * grid.height), column])
        for step in (4 * np.sign(latitude), -4 * np.sign(latitude))
    )
    assert 100 < equatorward - poleward < 2500


def test_rivers_run_from_the_subtropics_over_thousands_of_kilometres(grid):
    rng = np.random.default_rng(0)
    rivers = [river for _ in range(100) for river in draw_rivers(rng, 4.0, 0.0, grid)]
    long = [river for river in rivers if river.delta_lon > 30]
    assert len(long) / 100 == pytest.approx(4.0, abs=0.8)
    assert all(abs(river.lat) < 30 and river.delta_lat > 15 for river in long)
    short = [river for river in rivers if river.delta_lon <= 30]
    assert 0.2 < len(short) / len(long) < 0.7
