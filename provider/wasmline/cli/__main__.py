"""``python -m wasmline.cli``: the command line where the ``wasmline`` script is not on the path."""

from wasmline.cli import main

if __name__ == "__main__":
    main(prog_name="wasmline")
