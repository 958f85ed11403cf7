"""The entry point of `acphold` and `python -m acphold`.

An editor waits for `acphold wrap`: for that, only the way to the daemon is imported.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the exit code tells the result (docs/reference.md)."""
    if sys.platform == "win32":
        sys.exit(
            "acphold: Windows is not supported; install acphold in WSL and start it there: "
            "`wsl acphold …` (https://learn.microsoft.com/windows/wsl/install)"
        )
    try:
        _run(sys.argv[1:])
    except KeyboardInterrupt:  # before there was anything to interrupt
        sys.exit(130)


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["packed"]:
        from acphold.faces.cli.packed_words import unpack

        arguments = unpack(arguments[1:])
    if arguments and arguments[0].startswith("--journal"):
        from acphold.faces.cli.command_line import behind_command

        arguments = behind_command(arguments)
    if arguments[:1] == ["wrap"] and len(arguments) > 1:
        words = arguments[1:]  # the shortest way to start
        command = words[words.index("--") + 1 :] if "--" in words else []
        own = words[: len(words) - len(command)]
        on_terminal = sys.stdin is not None and sys.stdin.isatty()
        if command and not on_terminal and not {"-h", "--help"} & {*own}:
            from acphold.faces.cli.front import start_front

            sys.exit(start_front(words))
        from acphold.faces.cli.start import start_named, start_wrap

        sys.exit(start_wrap(words) if "--" in words else start_named(words))
    import gc

    gc.disable()  # imported modules stay; looking for garbage in them is a tenth of `acphold list`
    if arguments[:1] == ["daemon"] and len(arguments) in (2, 3):
        if len(arguments) == 3:  # systemd has started us
            from acphold.faces.cli.front import FRAME, REPORT
            from acphold.machine.transient_service import take_streams

            take_streams(FRAME, REPORT)
        else:
            from acphold.machine.own_program import leave_parent

            leave_parent()
        from acphold.faces.cli.early_agent import hold_and_begin

        try:
            held = hold_and_begin(arguments[1])
        except OSError:
            held = None  # it is tried again below, where the reason is reported
        from acphold.machine.late_tls import load_asyncio, load_msgspec

        load_asyncio()  # before anything else imports it
        load_msgspec()
        from acphold.faces.cli.daemon import start_daemon

        sys.exit(start_daemon(arguments[1], held))
    import signal

    # Before a command has begun there is nothing to clean up: Ctrl-C ends us without a word, even
    # in the middle of an import. If SIGINT is ignored, as after `nohup`, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if arguments and arguments[0] != "help" and not arguments[0].startswith("-"):
        from acphold.machine.late_tls import load_asyncio, load_msgspec

        if arguments[0] != "ask":  # which starts its agent before
            load_asyncio()
        if arguments[:2] != ["agent", "run"]:  # whose module may want all of msgspec
            load_msgspec()
    from acphold.faces.cli import main as command_line

    sys.exit(command_line.main(arguments))


if __name__ == "__main__":
    main()
