"""Gates over parameters that ranks hold in shards (DTensor: FSDP2, tensor parallel): each rank its rows."""
