"""The command `sfao`, as `python -m sfao`."""

from sfao.lab.cli.main import main

if __name__ == "__main__":
    main()
