"""The mean state and the weather against analytic facts and the observed climate."""

import math

import numpy as np
import pytest
import torch
from scipy.special import sph_harm_y

from apps.deepcam.climatology import Moment, atmosphere, mean_state, surface_temperature
from apps.deepcam.config import CHANNELS
from apps.deepcam.fields import AIR_DENSITY, publish, saturation_humidity, surface_pressure
from apps.deepcam.grid import CPU, global_grid, gradient
from apps.deepcam.weather import largest_degree, legendre_table, synthesize

JULY, JANUARY = Moment(200, 12.0), Moment(15, 12.0)


@pytest.fixture(scope="module")
def grid():
    return global_grid(96, 144, CPU)


def area_mean(field, grid):
    weight = grid.lat.cos().expand(grid.height, grid.width)
    return float((field * weight).sum() / weight.sum())


def test_saturation_humidity_of_the_tables():
    # WMO tables: 6.11 hPa over water at 0 C, 23.37 hPa at 20 C, 42.43 hPa at 30 C.
    for celsius, vapour in ((0.0, 611.2), (20.0, 2337.0), (30.0, 4243.0)):
        wanted = 0.622 * vapour / (1e5 - 0.378 * vapour)
        assert float(saturation_humidity(torch.tensor(celsius + 273.15), torch.tensor(1e5))) == pytest.approx(
            wanted, rel=0.005
        )


def test_surface_pressure_follows_the_standard_atmosphere(grid):
    temperature = 288.15 - 0.0065 * grid.surface
    found = surface_pressure(torch.full_like(temperature, 101325.0), temperature, grid)
    wanted = 101325.0 * (1 - 0.0065 * grid.surface / 288.15) ** 5.2559
    assert float(((found - wanted) / wanted).abs().max()) < 0.01


def test_land_covers_the_observed_share_of_the_globe(grid):
    assert area_mean(grid.land, grid) == pytest.approx(0.29, abs=0.03)
    assert 4000 < float(grid.surface.max()) < 6000


def test_seasons_turn_round_between_the_hemispheres(grid):
    july, january = surface_temperature(grid, JULY), surface_temperature(grid, JANUARY)
    north, south = slice(64, 80), slice(16, 32)
    assert float(july[north].mean()) > float(january[north].mean()) + 5
    assert float(july[south].mean()) < float(january[south].mean()) - 1


def test_zonal_means_are_those_of_the_earth(grid):
    rng = np.random.default_rng(1)
    samples = [publish(atmosphere(grid, moment, rng), grid, rng) for moment in (JULY, JANUARY) * 4]
    mean = dict(zip(CHANNELS, torch.stack(samples).mean(dim=(0, 2)).T, strict=True))

    def at(name, latitude):
        return float(mean[name][int((latitude + 90) / 180 * 96)])

    assert 38 < at("TMQ", 2) < 55
    assert 1 < at("TMQ", 75) < 10
    assert 298 < at("TREFHT", 2) < 302
    assert 12350 < at("Z200", 2) < 12600
    assert 10900 < at("Z200", -80) < 11500
    assert 266 < at("T500", 2) < 270
    assert at("PSL", -31) > at("PSL", 0) + 300 > at("PSL", -64) + 1500
    assert at("U850", 14) < -2
    assert at("U850", -48) > 7
    assert 8.64e7 * at("PRECT", 2) > 2.5 * 8.64e7 * at("PRECT", -22)
    rain = torch.stack(samples)[..., CHANNELS.index("PRECT")].mean(0)
    assert 8.64e7 * area_mean(rain, grid) == pytest.approx(2.7, abs=0.7)
    assert 55 < at("ZBOT", 40) < 70


def test_legendre_functions_are_those_of_spherical_harmonics():
    table = legendre_table(12, 9)
    colatitude = math.pi / 2 - ((np.arange(12) + 0.5) * math.pi / 12 - math.pi / 2)
    for degree in range(10):
        for order in range(degree + 1):
            # SciPy includes the Condon-Shortley phase, which leaves random fields as they are.
            wanted = (-1) ** order * sph_harm_y(degree, order, colatitude, 0.0).real
            assert table[order, :, degree] == pytest.approx(wanted, abs=1e-5)


def test_eddies_have_unit_wind_and_tracers_unit_variance():
    grid = global_grid(192, 288, CPU)
    rng = np.random.default_rng(0)
    winds, variances = [], []
    for _ in range(12):
        eddy, tracer = synthesize(rng, ("eddy", "tracer"), grid)
        east, north = gradient(eddy, grid)
        winds.append((area_mean(east**2, grid), area_mean(north**2, grid)))
        variances.append(area_mean(tracer**2, grid))
    # 192 rows carry all but a few per cent of the spectrum.
    assert np.mean(winds) == pytest.approx(0.95, abs=0.1)
    assert np.mean(variances) == pytest.approx(0.95, abs=0.1)


def test_weather_is_isotropic_up_to_the_poles(grid):
    rng = np.random.default_rng(5)
    fields = torch.stack([synthesize(rng, ("tracer",), grid)[0] for _ in range(60)])
    by_latitude = fields.square().mean(dim=(0, 2))
    polar, middle = by_latitude[[0, 1, -2, -1]].mean(), by_latitude[40:56].mean()
    assert float(polar / middle) == pytest.approx(1.0, abs=0.3)


def test_fine_waves_continue_the_spectrum():
    grid = global_grid(512, 768, CPU)
    degree = largest_degree(grid)
    rng = np.random.default_rng(2)
    fields = torch.stack([synthesize(rng, ("tracer",), grid)[0] for _ in range(3)])
    power = torch.fft.rfft(fields[:, 216:296]).abs().square().mean(dim=(0, 1))
    below, above = power[degree - 23 : degree + 1].mean(), power[degree + 1 : degree + 25].mean()
    # The variance by degree falls as l^-2, and so does that by zonal wave number near the equator.
    assert float(below / above) == pytest.approx(((degree + 12) / (degree - 12)) ** 2, rel=0.15)


def test_eddy_winds_are_geostrophic(grid):
    rng = np.random.default_rng(7)
    mean, _ = mean_state(grid, JULY)
    fields = atmosphere(grid, JULY, rng)
    _, north = gradient(fields.psl - mean.psl, grid)
    east, _ = gradient(fields.psl - mean.psl, grid)
    middle = slice(64, 80)
    f = grid.coriolis[middle]
    for wind, slope in ((fields.u850 - mean.u850, -north), (fields.v850 - mean.v850, east)):
        balanced = (slope[middle] / (AIR_DENSITY * f)).flatten()
        pair = torch.stack((balanced, wind[middle].flatten()))
        assert float(torch.corrcoef(pair)[0, 1]) > 0.97


def test_humidity_stays_below_saturation_and_rain_is_never_zero(grid):
    rng = np.random.default_rng(3)
    sample = publish(atmosphere(grid, JANUARY, rng), grid, rng)
    q, ps, t = (sample[..., CHANNELS.index(name)] for name in ("QREFHT", "PS", "TREFHT"))
    assert float((q / saturation_humidity(t, ps)).max()) < 1.05
    assert float(q.min()) > 0
    assert float(sample[..., CHANNELS.index("PRECT")].min()) > 0
