"""Where `acphold` and `python -m acphold` begin.

`acphold wrap` is what an editor waits for, so the agent is started here, before anything else
is imported: what acphold loads, it loads while the agent does the same.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the exit code says how it went (docs/reference.md)."""
    try:
        _run(sys.argv[1:])
    except KeyboardInterrupt:  # before there was anything that could be interrupted
        sys.exit(130)


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["packed"]:
        from acphold.cli.packed_words import unpacked

        arguments = unpacked(arguments[1:])
    if arguments[:1] == ["wrap"] and len(arguments) > 1:
        sys.exit(_wrap(arguments[1:]))
    if arguments[:1] == ["owner"] and len(arguments) > 2:
        from acphold.cli.start import start_owner

        sys.exit(start_owner(arguments[1], arguments[2:]))
    import gc
    import signal

    gc.disable()  # what is imported stays: looking for garbage in it is a tenth of `acphold list`
    # Until a command has begun there is nothing to put in order: Ctrl-C ends us without a word,
    # wherever it meets an import. Who ignores it, as `nohup` may, goes on ignoring it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from acphold.cli import main as command_line

    sys.exit(command_line.main(arguments))


def _wrap(words: list[str]) -> int:
    """Start `wrap` the shortest way; its exit code."""
    own = words[: words.index("--")] if "--" in words else []
    where = [word for word in own if word in ("--background", "--no-background")]
    if where[-1:] == ["--background"] and not {"-h", "--help"} & {*own}:
        from acphold.cli.thin_wrap import start_thin_wrap

        return start_thin_wrap(words)
    from acphold.cli.start import start_named, start_wrap

    return start_wrap(words) if "--" in words else start_named(words)


if __name__ == "__main__":
    main()
