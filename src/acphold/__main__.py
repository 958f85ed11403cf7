"""Where `acphold` and `python -m acphold` begin.

`acphold wrap` is what an editor waits for, so the agent is started here, before anything else
is imported: what acphold loads, it loads while the agent does the same.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the exit code says how it went (docs/operations.md)."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["wrap"] and len(arguments) > 1:
        from acphold.cli.start import start_named, start_wrap

        start = start_wrap if "--" in arguments else start_named
        sys.exit(start(arguments[1:]))
    from acphold.cli import main as command_line

    sys.exit(command_line.main(arguments))


if __name__ == "__main__":
    main()
