# UNTRIED: no Spack has built this package yet. A test holds its dependencies to those of pyproject.toml.
# docs/contrib.md says how it is used, and which packages Spack may lack.

from spack.package import *
from spack_repo.builtin.build_systems.python import PythonPackage


class PyHpcbenchMl(PythonPackage):
    """A benchmark suite for scientific deep learning on supercomputers."""

    # There is no release to download: `spack develop` gives it the clone that this file lies in.

    license("Apache-2.0")

    version("0.1.0")

    variant("fast", default=False, description="Numba, which compiles LAMB's loops for processors")
    variant("energy", default=False, description="NVML, for energy and utilization of NVIDIA GPUs")
    variant("tensorboard", default=False, description="TensorBoard")
    variant("lightning", default=False, description="LightningModules as applications")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-setuptools-scm@8.1:", type="build")

    depends_on("py-torch@2.6:+distributed", type=("build", "run"))
    depends_on("py-lightning-fabric@2.4:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-scipy@1.11:", type=("build", "run"))
    depends_on("py-h5py@3.10:", type=("build", "run"))
    depends_on("py-mpi4py@4.0:", type=("build", "run"))
    depends_on("py-mlperf-logging@4.1.68:", type=("build", "run"))
    depends_on("py-pyyaml@6.0:", type=("build", "run"))
    depends_on("py-pandas@2.1:", type=("build", "run"))
    depends_on("py-matplotlib@3.8:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-psutil@5.9:", type=("build", "run"))
    depends_on("py-packaging@23.0:", type=("build", "run"))
    depends_on("py-fastcrc@0.5:", type=("build", "run"))
    depends_on("py-threadpoolctl@3.1:", type=("build", "run"))
    depends_on("py-deflate@0.7:", type=("build", "run"))
    depends_on("py-argcomplete@3.5:", type=("build", "run"))

    depends_on("py-numba@0.61:", when="+fast", type=("build", "run"))
    depends_on("py-nvidia-ml-py@12.535:", when="+energy", type=("build", "run"))
    depends_on("py-tensorboard@2.16:", when="+tensorboard", type=("build", "run"))
    depends_on("py-lightning@2.4:", when="+lightning", type=("build", "run"))
