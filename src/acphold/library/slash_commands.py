"""The slash commands of a session: the author's, and the prompts of its MCP servers.

Source: spec v1, slash commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from acphold.schema import (
    AvailableCommand,
    AvailableCommandsUpdate,
    ContentBlock,
    TextContent,
    UnstructuredCommandInput,
    encode,
)

if TYPE_CHECKING:
    from acphold.library.outbox import Outbox
    from acphold.mcp import Prompt


class SlashCommands:
    """The commands that the client is shown, and the meaning of a prompt that begins with `/name`.

    `declared` are the author's commands by name; `shown` is the list the client was last shown, a
    JSON array.
    """

    def __init__(self, declared: Mapping[str, AvailableCommand], outbox: Outbox) -> None:
        self.shown: bytes = b"[]"
        self._declared = declared
        self._outbox = outbox
        self._prompts: dict[str, Prompt] = {}

    def offer(self, prompts: Sequence[Prompt] = ()) -> None:
        """Show the author's commands and these prompts, unless the client has this list already."""
        self._prompts = {}
        for prompt in prompts:
            name = "-".join(f"{prompt.server}:{prompt.name}".split())
            if name not in self._declared:
                self._prompts.setdefault(name, prompt)
        commands = (
            *self._declared.values(),
            *(_command(name, prompt) for name, prompt in self._prompts.items()),
        )
        raw = encode(commands)
        if raw != self.shown:
            self.shown = raw
            self._outbox.add(encode(AvailableCommandsUpdate(available_commands=commands)))

    def is_command(self, name: str) -> bool:
        """Return True if the author declared `/name`."""
        return name in self._declared

    def prompt(self, name: str) -> Prompt | None:
        """Return the MCP prompt behind `/name`, if it is one."""
        return self._prompts.get(name)


def slash_command(prompt: tuple[ContentBlock, ...]) -> tuple[str, str] | None:
    """Return the name and the words of a prompt that begins with `/name`, otherwise None."""
    first = prompt[0] if prompt else None
    if not isinstance(first, TextContent) or not first.text.startswith("/"):
        return None
    name, *words = first.text[1:].split(None, 1) or [""]
    return name, (words[0].strip() if words else "")


def arguments(prompt: Prompt, words: str) -> dict[str, str]:
    """Return the words after a command as arguments of an MCP prompt.

    They are `name=value` for each, quoted as in a shell; or values in order, the last one taking
    all the rest.
    """
    names = [argument.name for argument in prompt.arguments]
    if not names or not words:
        return {}
    named = [word.partition("=") for word in _split(words)]
    if all(equals and name in names for name, equals, _ in named):
        return {name: value for name, _, value in named}
    if len(names) == 1:
        return {names[0]: words}
    values = _split(words)
    rest = len(names) - 1
    if len(values) > len(names):
        values = [*values[:rest], " ".join(values[rest:])]
    return dict(zip(names, values, strict=False))


def missing(prompt: Prompt, given: dict[str, str]) -> list[str]:
    """Return the names of the arguments that a prompt needs and was not given."""
    return [
        argument.name
        for argument in prompt.arguments
        if argument.required and argument.name not in given
    ]


def _split(words: str) -> list[str]:
    import shlex

    try:
        return shlex.split(words)
    except ValueError:  # a quote that does not end
        return words.split()


def _command(name: str, prompt: Prompt) -> AvailableCommand:
    hint = " ".join(
        argument.name if argument.required else f"[{argument.name}]"
        for argument in prompt.arguments
    )
    return AvailableCommand(
        name=name,
        description=prompt.description or prompt.title or prompt.name,
        input=UnstructuredCommandInput(hint=hint) if hint else None,
    )
