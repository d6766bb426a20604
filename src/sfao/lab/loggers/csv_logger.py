"""A log as a CSV file, one line per value: what is logged may change on the way, and no library is needed."""

import csv
from io import StringIO

from sfao.lab.loggers.logger import Logger, open_without_links

HEADER = ["step", "name", "value"]


class CSVLogger(Logger):
    """Values in `log.csv`, a line `step,name,value` for each, on the disk as soon as they are logged.

    With pandas: ``read_csv("log.csv").pivot(index="step", columns="name", values="value")`` has one column per name.
    """

    name = "csv"
    place = "log.csv"

    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        held = self._cut() if self.path.exists() else {}
        self._file = open(self.path, "a", encoding="utf-8", newline="", opener=open_without_links)  # noqa: SIM115
        if self._file.tell() == 0:
            self._write_rows([HEADER])
        return held

    def _cut(self) -> dict[str, int]:
        """Cut off a line that a killed process left unfinished; return the last step of each name."""
        held = {name: step for step, name, _ in self.read()}
        with open(self.path, "r+b", opener=open_without_links) as file:
            file.truncate(file.read().rfind(b"\n") + 1)
        return held

    def read(self) -> list[tuple[int, str, float]]:
        """Return the steps, names and values of the whole lines of the file."""
        data = self.path.read_bytes()
        text = data[: data.rfind(b"\n") + 1].decode(errors="replace")
        try:
            lines = list(enumerate(csv.reader(StringIO(text, newline="")), start=1))
        except csv.Error as error:  # an endless value, say
            raise ValueError(
                f"{self.path} must be a log of steps, names and values, but is damaged: {error}"
            ) from error
        return [self._read_row(number, row) for number, row in lines if number > 1 or row != HEADER]

    def _read_row(self, number: int, row: list[str]) -> tuple[int, str, float]:
        try:
            step, name, value = row
            return int(step), name, float(value)
        except ValueError as error:
            raise ValueError(
                f"{self.path} must be a log of steps, names and values, but line {number} is {row}"
            ) from error

    def _write(self, values: dict[str, float], step: int) -> None:
        self._write_rows([[str(step), name, repr(value)] for name, value in values.items()])

    def _write_rows(self, rows: list[list[str]]) -> None:
        csv.writer(self._file, lineterminator="\n").writerows(rows)
        self.flush()

    def flush(self) -> None:
        self._file.flush()

    def close(self, *, failed: bool = False) -> None:
        self._file.close()
