"""Creates an Airflow's database and loads its DAGs, in one process: Airflow's command line takes seconds to load."""

from __future__ import annotations

from airflow.cli.cli_parser import get_parser

COMMANDS = (["db", "migrate"], ["dags", "reserialize"])


def main() -> None:
    """Run the commands one after the other; each exits with a message if it fails."""
    parser = get_parser()
    for command in COMMANDS:
        arguments = parser.parse_args(command)
        arguments.func(arguments)


if __name__ == "__main__":
    main()
