"""The actor between the runs of a cluster and the command that waits for them; it imports nothing of ours."""

#: The number of a run, its attempt, and a pickled message: opened by the command, not here.
Letter = tuple[int, int, bytes]


class Mailbox:
    """Messages of runs on their way to the command, and its wish to stop on their way back."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []
        self._stopping = False

    def post(self, letter: Letter | None) -> bool:
        """Keep a letter, if there is one, until it is taken; tell whether the runs are to stop."""
        if letter is not None:
            self._letters.append(letter)
        return self._stopping

    def take(self) -> list[Letter]:
        """Return the letters that have arrived since the last call."""
        taken, self._letters = self._letters, []
        return taken

    def stop(self) -> None:
        """Answer from now on that the runs are to stop."""
        self._stopping = True
