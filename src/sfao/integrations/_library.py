"""The error for a library that is not installed."""


def explain_missing(error: ImportError, library: str, extra: str) -> ImportError:
    """Return the error for an integration whose library cannot be imported: the reason, and what installs it."""
    if error.name is not None and error.name.partition(".")[0] == library:
        reason = f"{library}, which is not installed"
    else:
        reason = f"{library}, whose import failed ({str(error).splitlines()[0]})"
    return ImportError(f"sfao.integrations.{extra} needs {reason}; pip install 'sfao[{extra}]' brings it", name=library)
