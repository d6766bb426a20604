"""How large a model of the laboratory may be."""

#: Beyond this a size is a slip: 4 GB of weights, before any gradient.
MOST_PARAMETERS = 1_000_000_000


def check_parameters(name: str, value: object, parameters: int) -> None:
    """Refuse a size before memory is taken for the model that it gives."""
    if parameters > MOST_PARAMETERS:
        raise ValueError(f"`{name}` must give a model of at most {MOST_PARAMETERS:,} parameters, got {value!r}")
