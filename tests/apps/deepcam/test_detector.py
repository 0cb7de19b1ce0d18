"""The detector finds planted events and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from apps.deepcam.detector import (
    PUBLISHED,
    STRICT,
    cyclone_centres,
    detect,
    find_rivers,
    transport_threshold,
    vapour_transport,
)
from apps.deepcam.rivers import River, add_river
from apps.deepcam.vortices import Vortex, add_vortex

STORM = Vortex(
    lat=18.0, lon=150.0, depth_pa=5000.0, radius_m=90e3, shape=1.4, core_k=5.0, moisture=20.0,
    rain_mm_per_day=200.0, reach_m=720e3, spiral_phase=0.3,
)  # fmt: skip
RIVER = River(
    lat=22.0, lon=160.0, delta_lat=25.0, delta_lon=50.0, meander=1.0, half_width_m=260e3, jet=18.0, moisture=18.0,
    rain_mm_per_day=30.0,
)  # fmt: skip


def cell(grid, lat, lon):
    return int((lat + 90) / 180 * grid.height), int(lon % 360 / 360 * grid.width)


def test_air_at_rest_is_background(calm, published):
    assert not detect(published(calm)).any()


@pytest.mark.parametrize("latitude", [18.0, -18.0])
@pytest.mark.parametrize("longitude", [150.0, 0.3])
def test_planted_cyclone_is_found_at_its_place(grid, calm, published, latitude, longitude):
    storm = replace(STORM, lat=latitude, lon=longitude)
    add_vortex(calm, grid, storm)
    sample = published(calm)
    ((row, column),) = cyclone_centres(sample)
    planted = cell(grid, latitude, longitude)
    assert abs(row - planted[0]) <= 1
    assert min(abs(column - planted[1]), grid.width - abs(column - planted[1])) <= 1
    labels = detect(sample)
    assert labels[planted] == 1
    assert set(np.unique(labels)) == {0, 1}
    # A disc of a few hundred kilometres: 104 km between rows.
    assert 8 <= (labels == 1).sum() <= 60


def test_cyclone_that_turns_the_wrong_way_is_no_cyclone(grid, calm, published):
    add_vortex(calm, grid, STORM)
    for wind in (calm.u850, calm.v850):
        wind.neg_()
    assert cyclone_centres(published(calm)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"core_k": -3.0},
        {"core_k": 0.0},
        {"depth_pa": 400.0},
        {"depth_pa": 0.0},
        {"lat": 55.0, "radius_m": 350e3, "reach_m": 1.5e6},
    ],
    ids=["cold core", "no core", "shallow", "moist blob", "mid-latitude"],
)
def test_look_alikes_are_no_cyclones(grid, calm, published, change):
    add_vortex(calm, grid, replace(STORM, **change))
    assert not (detect(published(calm)) == 1).any()


@pytest.mark.parametrize("latitude", [22.0, -22.0])
@pytest.mark.parametrize("longitude", [160.0, 335.0])
def test_planted_river_is_one_region_along_its_path(grid, calm, published, latitude, longitude):
    river = replace(RIVER, lat=latitude, lon=longitude)
    add_river(calm, grid, river)
    labels = detect(published(calm))
    lats, lons = river.path()
    on_path = [labels[cell(grid, lat, lon)] for lat, lon in zip(lats[10:38], lons[10:38], strict=True)]
    assert on_path == [2] * 28
    assert set(np.unique(labels)) == {0, 2}


def test_rivers_must_be_long_and_narrow_and_outside_the_deep_tropics(grid, calm, published):
    short = replace(RIVER, lat=30.0, delta_lat=5.0, delta_lon=8.0)
    add_river(calm, grid, short)
    strong = vapour_transport(published(calm)) > PUBLISHED.transport
    assert strong.sum() > 10
    assert not detect(published(calm)).any()
    row, column = cell(grid, 8.0, 60.0)
    calm.u850[row - 2 : row + 3, column : column + 60] = 25.0
    assert not detect(published(calm)).any()
    row, column = cell(grid, 40.0, 60.0)
    calm.u850[row - 12 : row + 12, column : column + 24] = 25.0
    assert not detect(published(calm)).any()


def test_river_across_the_last_column_is_measured_whole(grid, calm, published):
    row, _ = cell(grid, 35.0, 0.0)
    for start in (100, grid.width - 12):
        fields = replace(calm, u850=torch.zeros_like(calm.u850))
        columns = [(start + step) % grid.width for step in range(24)]
        fields.u850[row - 1 : row + 2, columns] = 25.0
        found = find_rivers(published(fields), np.zeros((grid.height, grid.width), dtype=bool))
        assert found.sum() == 3 * 24


def test_cyclone_overrides_river(grid, calm, published):
    river = replace(RIVER, lat=20.0)
    add_river(calm, grid, river)
    lats, lons = river.path()
    storm = replace(STORM, lat=float(lats[8]), lon=float(lons[8]))
    add_vortex(calm, grid, storm)
    labels = detect(published(calm))
    assert labels[cell(grid, storm.lat, storm.lon)] == 1
    assert (labels == 2).sum() > 50


def test_strict_thresholds_mark_a_part_of_the_published_ones(grid, calm, published):
    add_river(calm, grid, RIVER)
    add_vortex(calm, grid, replace(STORM, lat=-15.0))
    sample = published(calm)
    wide, narrow = detect(sample, PUBLISHED), detect(sample, STRICT)
    for label in (1, 2):
        assert 0 < (narrow == label).sum() < (wide == label).sum()
    assert not ((narrow > 0) & (wide == 0)).any()


def test_transport_threshold_falls_towards_the_poles():
    lat = np.array([0.0, 30.0, 45.0, 60.0, -60.0])
    values = transport_threshold(lat)
    assert values[1] == pytest.approx(PUBLISHED.transport, rel=1e-6)
    assert values[0] > values[1] > values[2] > values[3] == values[4] > 0


def test_ring_of_transport_around_a_low_is_no_river(grid, calm, published):
    low = replace(STORM, lat=48.0, depth_pa=5500.0, radius_m=450e3, core_k=-4.0, reach_m=1.5e6)
    add_vortex(calm, grid, low)
    sample = published(calm)
    assert (vapour_transport(sample) > PUBLISHED.transport).sum() > 150
    assert not detect(sample).any()


def test_calm_eye_belongs_to_the_storm(grid, calm, published):
    add_vortex(calm, grid, replace(STORM, radius_m=260e3, depth_pa=6500.0, reach_m=1.2e6))
    sample = published(calm)
    centre = cell(grid, STORM.lat, STORM.lon)
    wind = np.hypot(sample[..., 1], sample[..., 2])
    assert wind[centre] < PUBLISHED.pixel_wind < wind[centre[0], centre[1] + 3]
    assert detect(sample)[centre] == 1
