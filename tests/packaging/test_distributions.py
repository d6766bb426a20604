"""What is in the wheel and in the sdist."""

import tarfile
import tomllib
from email import message_from_bytes
from importlib.metadata import packages_distributions
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sfao
from sfao.lab.cli.main import LAB
from tests.packaging.conftest import ROOT, build
from tests.packaging.environments import needed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = {
    str(file.relative_to(ROOT / "src"))
    for file in (ROOT / "src").rglob("*")
    if file.is_file() and "__pycache__" not in file.parts
}


def test_the_wheel_holds_all_of_the_package_and_nothing_else(wheel):
    names = set(ZipFile(wheel).namelist())
    assert {name for name in names if not name.startswith("sfao-")} == SOURCES
    kinds = {name.rpartition(".")[2] for name in SOURCES}
    assert kinds == {"py", "typed", "yaml", "jinja", "css", "js", "gz", "txt"}
    assert f"sfao-{sfao.__version__}.dist-info/licenses/LICENSE" in names
    assert "sfao/lab/data/mnist-5k-NOTICE.txt" in names


def test_the_metadata_of_the_wheel(wheel):
    told = message_from_bytes(ZipFile(wheel).read(f"sfao-{sfao.__version__}.dist-info/METADATA"))
    assert (told["Name"], told["Version"]) == ("sfao", sfao.__version__)
    assert told["License-Expression"] == "MIT AND CC-BY-SA-3.0"
    assert told["Author"] == "The sfao developers"
    assert "continual learning" in told["Keywords"]
    assert "Typing :: Typed" in told.get_all("Classifier")
    assert told.get_all("Project-URL") == ["Paper, https://arxiv.org/abs/2603.26671"]
    required = [Requirement(text) for text in told.get_all("Requires-Dist")]
    assert {requirement.name for requirement in required if requirement.marker is None} == {"torch", "numpy"}
    libraries = {"avalanche", "lightning", "peft", "ray", "timm", "transformers", "tensorboard", "wandb", "mlflow"}
    assert set(told.get_all("Provides-Extra")) == {"lab", "docs", "dev", *libraries}


def test_the_sdist_holds_what_its_tests_need_and_makes_the_same_wheel(wheel, tmp_path):
    (sdist,) = build(ROOT, tmp_path / "sdist", "--sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    for name in ("LICENSE", "Makefile", "constraints.txt", "mkdocs.yml", "tests/conftest.py", "docs/tutorial.md"):
        assert (unpacked / name).is_file(), name
    assert {path.name for path in unpacked.iterdir()}.isdisjoint({".venv", ".git", "site", "runs", "dist"})
    (again,) = build(unpacked, tmp_path / "again", "--wheel")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_the_command_looks_for_everything_that_the_extra_brings():
    homes = packages_distributions()
    brought = {canonicalize_name(Requirement(text).name) for text in PROJECT["optional-dependencies"]["lab"]}
    assert {canonicalize_name(homes[name][0]) for name in LAB} == brought


def test_every_package_that_a_set_up_installs_is_pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {
        canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines) if version
    }
    extras = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *extras["lab"], *extras["docs"], *extras["dev"][1:]]
    installed = {canonicalize_name(each.metadata["Name"]): each.version for each in needed(asked)}
    assert extras["dev"][0] == "sfao[lab,docs]"
    # A build of torch for one kind of device has that kind in its version.
    assert {name: version.partition("+")[0] for name, version in installed.items()}.items() <= pins.items()


def test_the_citation_has_the_version():
    assert f"\nversion: {sfao.__version__}\n" in (ROOT / "CITATION.cff").read_text()
