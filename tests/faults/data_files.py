"""The files of a data set as they are, to be compared with how they were."""

#: Longer than a tick of the clocks of file systems.
SETTLED_SECONDS = 0.02


def list_files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def take_contents(folder):
    return {path: path.read_bytes() for path in list_files(folder)}


def take_data(folder):
    """All but what is remembered, which may be written whenever it is found out."""
    return {path: content for path, content in take_contents(folder).items() if path.suffix != ".checked"}
