"""Loggers of values over steps: a CSV file, TensorBoard, Weights & Biases, MLflow, each imported when used."""

from sfao.checks import MissingLibrary
from sfao.lab.loggers.csv_logger import CSVLogger
from sfao.lab.loggers.logger import Logger
from sfao.lab.loggers.mlflow_logger import MLflowLogger
from sfao.lab.loggers.tensorboard_logger import TensorBoardLogger
from sfao.lab.loggers.wandb_logger import WandbLogger

#: The loggers by the name that `--log` and the extra of the package have.
LOGGERS: dict[str, type[Logger]] = {
    logger.name: logger for logger in (CSVLogger, TensorBoardLogger, WandbLogger, MLflowLogger)
}

__all__ = [
    "LOGGERS",
    "CSVLogger",
    "Logger",
    "MLflowLogger",
    "MissingLibrary",
    "TensorBoardLogger",
    "WandbLogger",
]
