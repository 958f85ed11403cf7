"""What can still be told about a message of which only the beginning was kept."""

from __future__ import annotations


def leading_members(head: bytes) -> dict[str, bytes]:
    """The top-level members that lie whole in `head`, the first bytes of a JSON object.

    Enough to answer a message that is too long with the id it came with.
    """
    import json  # here: a message over the limit is rare, and start-up is not

    decode = json.JSONDecoder().raw_decode
    text = head.decode("utf-8", "replace")
    found: dict[str, bytes] = {}
    place = _skip(text, 0, "{")
    try:
        while place < len(text):
            name, place = decode(text, place)
            place = _skip(text, place, ":")
            _, end = decode(text, place)
            if end == len(text):
                break  # a number may go on behind the cut
            found[str(name)] = text[place:end].encode()
            place = _skip(text, end, ",")
    except ValueError:
        pass  # the cut went through this member: those before it are what there is
    return found


def _skip(text: str, place: int, mark: str) -> int:
    while place < len(text) and (text[place].isspace() or text[place] == mark):
        place += 1
    return place
