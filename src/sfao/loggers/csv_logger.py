"""A log as a CSV file, one line per value: what is logged may change on the way, and no library is needed."""

import csv
from io import StringIO

from sfao.loggers.logger import Logger

HEADER = ["step", "name", "value"]


class CSVLogger(Logger):
    """Values in `log.csv`, a line `step,name,value` for each, on the disk as soon as they are logged.

    With pandas: ``read_csv("log.csv").pivot(index="step", columns="name", values="value")`` has one column per name.
    """

    name = "csv"
    place = "log.csv"

    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        held = self._cut() if self.path.exists() else {}
        self._file = open(self.path, "a", encoding="utf-8", newline="")  # noqa: SIM115, it stays open until `close`
        if self._file.tell() == 0:
            self._write_rows([HEADER])
        return held

    def _cut(self) -> dict[str, int]:
        """Cut off a line that a killed process left unfinished; return the last step of each name."""
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        rows = list(csv.reader(StringIO(whole.decode(errors="replace"), newline="")))
        held: dict[str, int] = {}
        for number, row in enumerate(rows):
            is_good = row == HEADER if number == 0 else len(row) == len(HEADER) and row[0].isdecimal()
            if not is_good:
                raise ValueError(
                    f"{self.path} must be a log of steps, names and values, but line {number + 1} is {row}"
                )
            if number:
                held[row[1]] = max(int(row[0]), held.get(row[1], -1))
        with open(self.path, "r+b") as file:
            file.truncate(len(whole))
        return held

    def _write(self, values: dict[str, float], step: int) -> None:
        self._write_rows([[str(step), name, repr(value)] for name, value in values.items()])

    def _write_rows(self, rows: list[list[str]]) -> None:
        csv.writer(self._file, lineterminator="\n").writerows(rows)
        self.flush()

    def flush(self) -> None:
        self._file.flush()

    def close(self, *, failed: bool = False) -> None:
        self._file.close()
