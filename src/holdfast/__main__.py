"""Where `holdfast` and `python -m holdfast` begin.

`holdfast wrap` is what an editor waits for, so the agent is started here, before anything else
is imported: what holdfast loads, it loads while the agent does the same.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the exit code says how it went (docs/operations.md)."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["wrap"] and "--" in arguments:
        from holdfast.cli.start import start_wrap

        sys.exit(start_wrap(arguments[1:]))
    if arguments[:1] == ["run"] and not {"-h", "--help"} & set(arguments):
        from holdfast.cli.run import run

        sys.exit(run(arguments[1:]))
    from holdfast.cli.main import cli

    cli(prog_name="holdfast")


if __name__ == "__main__":
    main()
