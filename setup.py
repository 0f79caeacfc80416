"""Metadata of the package. The repository root is the package ``hadabeam``."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
OUTSIDE = {"setup", "conftest"}
SUBPACKAGES = ["mechanisms", "schemas", "transforms", "pipelines"]


class BuildPackage(build_py):
    """Keeps what lies beside the package in its root, but is no part of it, out of wheels."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        return [row for row in found if package != "hadabeam" or row[1] not in OUTSIDE]


def version() -> str:
    match = re.search(r'^__version__ = "(.+)"$', (ROOT / "__init__.py").read_text(), re.M)
    if match is None:
        raise RuntimeError("__init__.py has no __version__")
    return match.group(1)


setup(
    name="hadabeam",
    version=version(),
    description="Locally private frequency estimation on Apache Beam, one bit per user",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.14",
    packages=["hadabeam", *(f"hadabeam.{name}" for name in SUBPACKAGES)],
    package_dir={"hadabeam": "."},
    package_data={"hadabeam": ["py.typed"], "hadabeam.schemas": ["*.avsc"]},
    include_package_data=False,
    zip_safe=False,
    install_requires=[
        "apache-beam>=2.77,<3",
        "cryptography>=42",
        "fastavro>=1.9",
        "numpy>=2.0",
        "orjson>=3.9.7",
        "pyarrow>=17",
        "zstandard>=0.22",
    ],
    extras_require={
        "test": [
            "build>=1.2",
            "hypothesis>=6.100",
            "matplotlib>=3.8",
            "pytest>=8.2",
            "pytest-xdist>=3.6",
            "scipy>=1.13",
            "setuptools>=77",
        ],
        # Pinned: what a new version finds is mended when it is chosen, not when it appears.
        "dev": ["mypy>=2.4,<2.5", "ruff>=0.17,<0.18"],
        "benchmark": ["numba>=0.60"],
        # gs://, Pub/Sub, BigQuery, Dataflow.
        "gcp": ["apache-beam[gcp]>=2.77,<3"],
        # s3://
        "aws": ["apache-beam[aws]>=2.77,<3"],
        "azure": ["apache-beam[azure]>=2.77,<3"],
        "hdfs": ["apache-beam[hdfs]>=2.77,<3"],
        "yaml": ["apache-beam[yaml]>=2.77,<3"],
        # What the tests of engines use besides.
        "engines": ["apache-beam[aws,gcp,yaml]>=2.77,<3", "confluent-kafka>=2.5"],
        "plot": ["matplotlib>=3.8"],
    },
    entry_points={"console_scripts": ["hadabeam = hadabeam.pipelines.cli:main"]},
    cmdclass={"build_py": BuildPackage},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Programming Language :: Python :: 3",
        "Topic :: Security :: Cryptography",
        "Topic :: Scientific/Engineering :: Information Analysis",
        "Typing :: Typed",
    ],
)
