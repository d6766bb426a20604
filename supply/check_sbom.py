"""Validate supply/sbom.json against the schema of CycloneDX; needs .venv-supply (`make sbom`)."""

import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

SBOM = Path(__file__).parent / "sbom.json"

if __name__ == "__main__":
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(SBOM.read_text())
    if error is not None:
        sys.exit(f"check_sbom: {SBOM.name} must be CycloneDX 1.6: {str(error.data.message)[:300]}")
    print("valid: CycloneDX 1.6")
