"""A log for TensorBoard: event files, as torch writes them."""

from sfao.lab.loggers.logger import FLUSH_SECONDS, Logger


class TensorBoardLogger(Logger):
    """Values as scalars of TensorBoard, in the folder `tensorboard`: ``tensorboard --logdir FOLDER`` shows them."""

    name = "tensorboard"
    libraries = ("tensorboard", "torch.utils.tensorboard")
    place = "tensorboard"

    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        from torch.utils.tensorboard import SummaryWriter

        held, has_config = self._read_last_steps() if self.path.exists() else ({}, False)
        self._writer = SummaryWriter(str(self.path), flush_secs=FLUSH_SECONDS)
        if config and not has_config:
            lines = [f"| {name} | `{value}` |" for name, value in config.items()]
            self._writer.add_text("config", "\n".join([f"| {run_name} | |", "|---|---|", *lines]))
        return held

    def _read_last_steps(self) -> tuple[dict[str, int], bool]:
        """Return the last step of each name, and if the settings are there."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(self.path), size_guidance={"scalars": 1})  # one, the last
        events.Reload()
        tags = events.Tags()
        return {tag: events.Scalars(tag)[-1].step for tag in tags["scalars"]}, "config/text_summary" in tags["tensors"]

    def _write(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self, *, failed: bool = False) -> None:
        self._writer.close()
