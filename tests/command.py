"""The command `sfao`, and programs, in processes forked from one that has loaded torch: they start in no time."""

import importlib.util
import os
import runpy
import shutil
import signal
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from tempfile import mkdtemp
from types import ModuleType

from tests.fork_server import context, set_environment, start_worker, use_server_of_parent


class Command:
    """A process of `sfao`, with what tests use of subprocess.Popen; `communicate` has what it printed.

    In a new session its workers are its children and start as they do for users; else they are forked too.
    """

    def __init__(
        self, *arguments: object, cwd: Path | str = ".", new_session: bool = False, **environment: str
    ) -> None:
        self._folder = Path(mkdtemp())
        self._printed = [self._folder / name for name in ("out", "error")]
        surroundings = {**os.environ, **environment}
        told = (list(map(str, arguments)), str(cwd), surroundings, list(map(str, self._printed)), new_session)
        self._process = context.Process(target=self._be, args=told)
        self._process.start()

    @staticmethod
    def _be(
        arguments: list[str], cwd: str, environment: Mapping[str, str], printed: list[str], new_session: bool
    ) -> None:
        _take_place(cwd, environment, printed, new_session)
        sys.argv = ["sfao", *arguments]
        from sfao.lab.cli.main import main
        from sfao.lab.run import pool

        if not new_session:
            use_server_of_parent()
            pool.start_worker = start_worker

        main()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        """Wait for the end, and return what was printed as output and as errors."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self.kill()
            raise TimeoutExpired("sfao", timeout)
        out, error = (path.read_text() if path.exists() else "" for path in self._printed)
        shutil.rmtree(self._folder)
        return out, error


class Program(Command):
    """A process of a program: its file, then its arguments. Warnings are errors."""

    @staticmethod
    def _be(
        arguments: list[str], cwd: str, environment: Mapping[str, str], printed: list[str], new_session: bool
    ) -> None:
        _take_place(cwd, environment, printed, new_session)
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        warnings.simplefilter("error")
        runpy.run_path(arguments[0], run_name="__main__")


def run(*arguments: object, cwd: Path | str = ".", **environment: str) -> CompletedProcess[str]:
    """Run the command to its end."""
    return _complete(Command(*arguments, cwd=cwd, **environment), ["sfao", *map(str, arguments)])


def run_program(*arguments: object, cwd: Path | str = ".", **environment: str) -> CompletedProcess[str]:
    """Run a program to its end."""
    return _complete(Program(*arguments, cwd=cwd, **environment), list(map(str, arguments)))


def _complete(process: Command, called: list[str]) -> CompletedProcess[str]:
    out, error = process.communicate()
    return CompletedProcess(called, process.returncode or 0, out, error)


def _take_place(cwd: str, environment: Mapping[str, str], printed: list[str], new_session: bool) -> None:
    """Let this process be where it was asked for, and write to files."""
    if new_session:
        os.setsid()
    for descriptor, path in enumerate(printed, start=1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(cwd)
    set_environment(environment)


def load_program(file: Path) -> ModuleType:
    """Return a program, such as docs/make_pages.py, as a module."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module
