"""Integrations are thin, and without their library they say in one line what is missing and what brings it."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import sfao
from sfao.checks import MissingLibrary, explain_missing

FOLDER = Path(sfao.__file__).parent / "integrations"
LIBRARIES = {"avalanche": "avalanche", "lightning": "lightning", "peft": "peft", "transformers": "transformers"}


def hide(library, monkeypatch):
    """Let imports of the library fail as where it is not installed, also where it is."""

    class Hider:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == library:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for module in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [Hider, *sys.meta_path])


def test_every_file_is_thin():
    for file in FOLDER.glob("*.py"):
        assert len(file.read_text().splitlines()) <= 150, file.name


@pytest.mark.parametrize("name", LIBRARIES)
def test_an_absent_library_is_named_with_what_brings_it(name, monkeypatch):
    hide(LIBRARIES[name], monkeypatch)
    monkeypatch.delitem(sys.modules, f"sfao.integrations.{name}", raising=False)
    with pytest.raises(MissingLibrary) as raised:
        import_module(f"sfao.integrations.{name}")
    message = str(raised.value)
    assert message.startswith(f"sfao.integrations.{name} needs {LIBRARIES[name]}, which is not installed; ")
    assert message.endswith(f"pip install 'sfao[{name}]' brings it")
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'wandb'", name="wandb"),
        ModuleNotFoundError("No module named 'peft.tuners.tuners_utils'", name="peft.tuners.tuners_utils"),
        ImportError("cannot import name 'PeftModel' from 'peft' (unknown location)", name="peft"),
    ],
    ids=["it needs another library", "a module of it is elsewhere", "a name of it is elsewhere"],
)
def test_a_library_that_is_there_but_broken_or_old_is_not_called_absent(error):
    broken = explain_missing(error, "peft", "sfao.integrations.peft", "peft")
    assert f"needs peft, whose import failed ({error}); pip install 'sfao[peft]'" in str(broken)


def test_no_library_is_imported_with_the_package():
    names = ", ".join(repr(name) for name in LIBRARIES.values())
    code = (
        f"import sys, sfao, sfao.integrations.attached; sfao.SFAO; print([n for n in ({names},) if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
