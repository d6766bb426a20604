"""What can be wrong with a run before it starts, and how it can end early."""


class ConfigError(ValueError):
    """A setting that breaks its rule: bad usage, exit code 2."""


class FolderError(RuntimeError):
    """An output folder that holds something else, or is in use: bad usage, exit code 2."""


class Diverged(Exception):  # noqa: N818, it names what happened
    """Losses or outputs are no numbers any more."""


class Interrupted(Exception):  # noqa: N818, it is no error
    """The run was asked to stop, and its state is saved: exit code 130."""
