"""sfao in the training loops of others: one file for each library, which that file alone imports.

Nothing here is imported by the rest of the package: `from sfao.integrations.lightning import GateCallback` needs
Lightning, `import sfao` does not.
"""
