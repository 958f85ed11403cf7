"""Modes and config options, set by a client: relayed, remembered, told to the others.

Sources: spec v1, session modes; session config options. Where an agent has both, a mode and the
option of category "mode" are two views of one choice and are kept in step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from acphold.errors import InvalidParamsError
from acphold.hub.marks import CHOICE
from acphold.hub.options import (
    array,
    current_values,
    mode_option,
    option_list,
    takes,
    with_value,
)
from acphold.schema import SET_SESSION_CONFIG_OPTION, SET_SESSION_MODE, encode
from acphold.schema.splice import members, splice

if TYPE_CHECKING:
    from acphold.hub.attachment import Attachment
    from acphold.hub.session import Session
    from acphold.journal.standing import Standing

OURS = {CHOICE: True}
"""The `_meta` of an update that tells what was chosen, or what follows from it."""


async def set_mode(session: Session, params: bytes, author: Attachment) -> bytes:
    """`session/set_mode`; raises RemoteError when the agent refuses."""
    mode_id = _string(members(params).get("modeId"), "modeId")
    answer = await _ask(session, SET_SESSION_MODE.name, params)
    if session.settings.current_mode_id != mode_id:
        await session.publish("update", [_mode_update(mode_id)], author)
    await _follow_mode(session, mode_id)
    return answer if answer.startswith(b"{") else b"{}"


async def set_config_option(session: Session, params: bytes, author: Attachment) -> bytes:
    """`session/set_config_option`; the answer has the complete list, whatever the agent sent."""
    option_id = _string(members(params).get("configId"), "configId")
    value = members(params).get("value", b"null")
    answer = await _ask(session, SET_SESSION_CONFIG_OPTION.name, params)
    if not answer.startswith(b"{"):
        answer = b"{}"
    options = option_list(members(answer).get("configOptions", b"null"))
    if not options:
        options = with_value(_options(session), option_id, value)
        answer = splice(answer, {"configOptions": array(options)})
    if array(options) != session.settings.config_options:
        await session.publish("update", [_options_update(options)], author)
    await _follow_option(session, options)
    return answer


def opened_result(session: Session) -> bytes:
    """The result of session/load and resume; `{}` at least.

    The agent's own answer, the modes and options in it as they stand now.
    """
    answer, settings = session.backing.answer, session.settings
    now: dict[str, bytes] = {}
    if settings.available_modes is not None and settings.current_mode_id is not None:
        modes = members(answer).get("modes", b"null")
        now["modes"] = splice(
            modes if modes.startswith(b"{") else b"{}",
            {
                "currentModeId": encode(settings.current_mode_id),
                "availableModes": settings.available_modes,
            },
        )
    if settings.config_options is not None:
        now["configOptions"] = settings.config_options
    return splice(answer, now)


async def keep_in_step(session: Session, before: Standing) -> None:
    """After an update of the agent: a mode and the option that stands for it are one choice."""
    settings = session.settings
    if settings.config_options != before.config_options:
        await _follow_option(session, _options(session))
    elif settings.current_mode_id != before.current_mode_id and settings.current_mode_id:
        await _follow_mode(session, settings.current_mode_id)


async def _ask(session: Session, method: str, params: bytes) -> bytes:
    await session.backing.ready()
    agent_session = encode(session.backing.agent_session)
    return await session.backing.agent.ask(method, splice(params, {"sessionId": agent_session}))


async def _follow_mode(session: Session, mode_id: str) -> None:
    """The option of category "mode" shows the mode that was set."""
    options = _options(session)
    option_id = mode_option(options)
    value = encode(mode_id)
    if (
        option_id is not None
        and current_values(options)[option_id] != value
        and takes(options, option_id, value)
    ):
        await session.publish("update", [_options_update(with_value(options, option_id, value))])


async def _follow_option(session: Session, options: list[bytes]) -> None:
    """The mode is what the option of category "mode" was set to, if it is one of the modes."""
    option_id = mode_option(options)
    if option_id is None or session.settings.available_modes is None:
        return
    value = current_values(options)[option_id]
    modes = [members(mode).get("id") for mode in option_list(session.settings.available_modes)]
    if value in modes and value != encode(session.settings.current_mode_id):
        await session.publish("update", [_mode_update(msgspec.json.decode(value, type=str))])


def _options(session: Session) -> list[bytes]:
    return option_list(session.settings.config_options or b"[]")


def _mode_update(mode_id: str) -> bytes:
    update = {"sessionUpdate": "current_mode_update", "currentModeId": mode_id, "_meta": OURS}
    return encode(update)


def _options_update(options: list[bytes]) -> bytes:
    return b'{"sessionUpdate":"config_option_update","configOptions":%b,"_meta":%b}' % (
        array(options),
        encode(OURS),
    )


def _string(raw: bytes | None, field: str) -> str:
    try:
        return msgspec.json.decode(raw or b"null", type=str)
    except msgspec.MsgspecError:
        raise InvalidParamsError(f"{field}: a string is required", field=field) from None
