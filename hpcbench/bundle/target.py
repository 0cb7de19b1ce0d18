"""The machine that a bundle is for: its Python, its processor architecture and its C library."""

from __future__ import annotations

from dataclasses import dataclass

PYTHONS = ("3.11", "3.12", "3.13")
"""Versions of CPython that the project supports, as its classifiers say."""
ARCHITECTURES = ("x86_64", "aarch64")
GLIBC = (2, 28)
"""The oldest C library that a bundle runs on: that of RHEL 8, older than those of SLES 15 SP3 and Ubuntu 20.04."""
OLDEST_GLIBC = {"x86_64": 5, "aarch64": 17}
"""Minor version of the first glibc that wheels are tagged with."""


@dataclass(frozen=True)
class Target:
    """A Python version such as ``3.12`` on an architecture such as ``x86_64``."""

    python: str
    architecture: str

    @property
    def tag(self) -> str:
        """The tag of this Python, such as ``cp312``."""
        return f"cp{self.python.replace('.', '')}"

    def __str__(self) -> str:
        return f"CPython {self.python} on {self.architecture}"

    def platforms(self) -> list[str]:
        """Platform tags of the wheels that run there, the newest first."""
        major, minor = GLIBC
        return [
            f"manylinux_{major}_{number}_{self.architecture}"
            for number in range(minor, OLDEST_GLIBC[self.architecture] - 1, -1)
        ]

    def pip_options(self) -> list[str]:
        """The options with which pip looks for wheels of this target, whatever it runs on itself."""
        platforms = [word for tag in self.platforms() for word in ("--platform", tag)]
        return ["--implementation", "cp", "--python-version", self.python, "--abi", self.tag, *platforms]

    def markers(self) -> dict[str, str]:
        """The variables of environment markers (PEP 508) there; the patch level is not known, so it is the first."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.architecture,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }
