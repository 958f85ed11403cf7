"""Terminals that run nothing: `echo WORDS` prints the words."""

from __future__ import annotations

from acphold.conformance.record import Json


class PlayedShell:
    """See `acphold.conformance.host.Shell`."""

    def __init__(self) -> None:
        self._printed: dict[str, str] = {}

    async def call(self, method: str, params: Json) -> Json:
        if method == "terminal/create":
            terminal_id = f"terminal-{len(self._printed) + 1}"
            line = str((params.get("args") or [params.get("command")])[-1])
            self._printed[terminal_id] = line.removeprefix("echo ") + "\n"
            return {"terminalId": terminal_id}
        printed = self._printed.get(params["terminalId"], "")
        status: Json = {"exitCode": 0}
        output: Json = {"output": printed, "truncated": False, "exitStatus": status}
        return {"terminal/output": output, "terminal/wait_for_exit": status}.get(method, {})

    async def aclose(self) -> None:
        return None
