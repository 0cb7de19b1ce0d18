"""Cosmology regression after CosmoFlow: four cosmological parameters from the matter density at four redshifts."""

from hpcbench.application import Application

application = Application(
    name="cosmoflow",
    title="Regression of cosmological parameters from 3-D matter density",
    benchmark="cosmoflow",
    package=__name__,
)
