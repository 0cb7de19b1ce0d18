"""Vortices obey the dynamics of the atmosphere; cyclones form where and when they do on Earth."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from apps.deepcam.cyclones import draw_confusing_lows, draw_cyclones, draw_moist_blobs, season_weight, yearly_activity
from apps.deepcam.fields import AIR_DENSITY
from apps.deepcam.grid import CPU, EARTH_RADIUS_M, global_grid
from apps.deepcam.vortices import Vortex, add_vortex, holland_gradient_wind, holland_pressure_deficit

STORM = Vortex(
    lat=18.0, lon=150.0, depth_pa=5000.0, radius_m=90e3, shape=1.4, core_k=5.0, moisture=20.0,
    rain_mm_per_day=200.0, reach_m=720e3, spiral_phase=0.3,
)  # fmt: skip


def test_strongest_wind_without_rotation_is_hollands():
    distance = torch.linspace(5e3, 600e3, 4000, dtype=torch.float64)
    wind = holland_gradient_wind(distance, 5000.0, 60e3, 1.5, 0.0)
    assert float(wind.max()) == pytest.approx(math.sqrt(1.5 * 5000 / (AIR_DENSITY * math.e)), rel=1e-6)
    assert float(distance[wind.argmax()]) == pytest.approx(60e3, rel=0.005)


@pytest.mark.parametrize("latitude", [12.0, -25.0])
def test_wind_balances_pressure_gradient_coriolis_and_centrifugal_force(latitude):
    coriolis = 2 * 7.292e-5 * math.sin(math.radians(latitude))
    distance = torch.linspace(20e3, 800e3, 300, dtype=torch.float64, requires_grad=True)
    pressure = -holland_pressure_deficit(distance, 4500.0, 70e3, 1.3)
    (slope,) = torch.autograd.grad(pressure.sum(), distance)
    wind = holland_gradient_wind(distance, 4500.0, 70e3, 1.3, coriolis)
    force = wind**2 / distance + abs(coriolis) * wind
    assert float(((force - slope / AIR_DENSITY) / force).detach().abs().max()) < 1e-9


def offsets(grid, storm):
    east = EARTH_RADIUS_M * grid.lat.cos() * (grid.lon - math.radians(storm.lon))
    north = (EARTH_RADIUS_M * (grid.lat - math.radians(storm.lat))).expand_as(east)
    return east, north, torch.hypot(east, north)


@pytest.mark.parametrize("latitude", [18.0, -18.0])
def test_cyclone_turns_the_right_way_and_draws_air_in(grid, calm, latitude):
    storm = replace(STORM, lat=latitude)
    add_vortex(calm, grid, storm)
    east, north, distance = offsets(grid, storm)
    ring = (distance > 120e3) & (distance < 500e3)
    for u, v, least_inflow in ((calm.u850, calm.v850, 0.05), (calm.ubot, calm.vbot, 0.25)):
        around = ((east * v - north * u) / distance)[ring]
        outward = ((east * u + north * v) / distance)[ring]
        assert bool((around * math.copysign(1, latitude) > 0).all())
        assert bool((outward < -least_inflow * around.abs()).all())


def test_cyclone_has_lowest_pressure_and_warm_moist_core_at_its_centre(grid, calm):
    add_vortex(calm, grid, STORM)
    _, _, distance = offsets(grid, STORM)
    centre = int(distance.argmin())
    assert int(calm.psl.argmin()) == centre
    assert int(calm.t500.argmax()) == int(calm.t200.argmax()) == centre
    assert 101000 - STORM.depth_pa < float(calm.psl.min()) < 101000 - 0.6 * STORM.depth_pa
    near, far = distance < 250e3, (distance > 900e3) & (distance < 1500e3)
    assert float(calm.tmq[near].mean() - calm.tmq[far].mean()) > 10
    assert float(calm.prect[near].mean() / calm.prect[far].mean()) > 10
    assert float((calm.u850**2 + calm.v850**2)[near].max()) > 25**2


def test_vortex_on_the_greenwich_meridian_wraps_around(grid, calm):
    add_vortex(calm, grid, replace(STORM, lon=0.0))
    left, right = calm.psl[:, -20:].flip(1), calm.psl[:, :20]
    assert float((left - right).abs().max()) < 1.0
    assert float(left.min()) < 99000


def test_cyclones_form_in_late_summer_over_tropical_sea(grid):
    rng = np.random.default_rng(0)
    september = [storm for _ in range(150) for storm in draw_cyclones(rng, 2.5, 250, grid)]
    february = [storm for _ in range(150) for storm in draw_cyclones(rng, 2.5, 45, grid)]
    assert np.mean([storm.lat > 0 for storm in september]) > 0.85
    assert np.mean([storm.lat < 0 for storm in february]) > 0.6
    for storm in september + february:
        assert 5 <= abs(storm.lat) <= 35
        assert storm.core_k > 1


def test_mean_number_over_the_year_is_the_configured_one():
    fine = global_grid(384, 576, CPU)
    rng = np.random.default_rng(4)
    counts = [len(draw_cyclones(rng, 2.5, day % 365, fine)) for day in range(0, 365 * 4, 2)]
    assert np.mean(counts) == pytest.approx(2.5, abs=4 * math.sqrt(2.5 / len(counts)))
    assert yearly_activity() < 1
    assert season_weight(235, 235) == 1


def test_coarse_grids_carry_larger_and_fewer_storms():
    rng = np.random.default_rng(1)
    fine, coarse = global_grid(768, 1152, CPU), global_grid(96, 144, CPU)
    sizes = {}
    for own in (fine, coarse):
        storms = [storm for _ in range(400) for storm in draw_cyclones(rng, 2.5, 240, own)]
        sizes[own.height] = (len(storms) / 400, np.mean([storm.radius_m for storm in storms]))
    assert sizes[96][0] / sizes[768][0] == pytest.approx(coarse.storm_scale**-2, rel=0.15)
    assert sizes[96][1] > 0.7 * math.radians(coarse.spacing_degrees) * EARTH_RADIUS_M > sizes[768][1]


def test_confusing_events_lack_what_makes_a_cyclone(grid):
    rng = np.random.default_rng(2)
    lows = [low for _ in range(50) for low in draw_confusing_lows(rng, 2.5, grid)]
    assert all(low.core_k < 0.5 for low in lows)
    assert all(blob.depth_pa == 0 and blob.moisture > 0 for blob in draw_moist_blobs(rng, grid))
