"""Modes and config options, set by a client: relayed, remembered, told to the others.

Sources: spec v1, session modes; session config options. Where an agent has both, a mode and the
option of category "mode" are two views of one choice and are kept in step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import InvalidParamsError
from holdfast.hub.options import array, current_values, mode_option, option_list, with_value
from holdfast.schema import SET_SESSION_CONFIG_OPTION, SET_SESSION_MODE
from holdfast.schema.splice import members, splice

if TYPE_CHECKING:
    from holdfast.hub.attachment import Attachment
    from holdfast.hub.session import Session


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
    """The result of session/load and resume: modes and options as they stand; `{}` at least."""
    settings = session.settings
    parts: list[bytes] = []
    if settings.available_modes is not None and settings.current_mode_id is not None:
        current = msgspec.json.encode(settings.current_mode_id)
        parts.append(
            b'"modes":{"currentModeId":%b,"availableModes":%b}'
            % (current, settings.available_modes)
        )
    if settings.config_options is not None:
        parts.append(b'"configOptions":%b' % settings.config_options)
    return b"{%b}" % b",".join(parts)


async def _ask(session: Session, method: str, params: bytes) -> bytes:
    await session.backing.ready()
    agent_session = msgspec.json.encode(session.backing.agent_session)
    return await session.backing.agent.ask(method, splice(params, {"sessionId": agent_session}))


async def _follow_mode(session: Session, mode_id: str) -> None:
    """The option of category "mode" shows the mode that was set."""
    options = _options(session)
    option_id = mode_option(options)
    value = msgspec.json.encode(mode_id)
    if option_id is not None and current_values(options)[option_id] != value:
        await session.publish("update", [_options_update(with_value(options, option_id, value))])


async def _follow_option(session: Session, options: list[bytes]) -> None:
    """The mode is what the option of category "mode" was set to, if it is one of the modes."""
    option_id = mode_option(options)
    if option_id is None or session.settings.available_modes is None:
        return
    value = current_values(options)[option_id]
    modes = [members(mode).get("id") for mode in option_list(session.settings.available_modes)]
    if value in modes and value != msgspec.json.encode(session.settings.current_mode_id):
        await session.publish("update", [_mode_update(msgspec.json.decode(value, type=str))])


def _options(session: Session) -> list[bytes]:
    return option_list(session.settings.config_options or b"[]")


def _mode_update(mode_id: str) -> bytes:
    return msgspec.json.encode({"sessionUpdate": "current_mode_update", "currentModeId": mode_id})


def _options_update(options: list[bytes]) -> bytes:
    return b'{"sessionUpdate":"config_option_update","configOptions":%b}' % array(options)


def _string(raw: bytes | None, field: str) -> str:
    try:
        return msgspec.json.decode(raw or b"null", type=str)
    except msgspec.MsgspecError:
        raise InvalidParamsError(f"{field}: a string is required", field=field) from None
