"""The gate on an accelerator: every layer in a few launches, and nothing that waits for the device."""
