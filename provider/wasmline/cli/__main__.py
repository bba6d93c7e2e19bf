"""``python -m wasmline.cli``: the command line without the ``wasmline`` script on the path."""

from wasmline.cli import main

if __name__ == "__main__":
    main(prog_name="wasmline")
