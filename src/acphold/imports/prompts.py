"""What a client had sent in a prompt, where the agent kept only text of it.

Adapters write a link as `[@name](uri)`, and put an embedded file behind the text, in
`<context ref="uri">`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from acphold.imports.scribe import image, text_block
from acphold.imports.values import Object, text

_LINK: Final = re.compile(r"\[@([^\]]*)\]\((\S+)\)")
_EMBEDDED: Final = re.compile(r'\n?<context ref="([^"]*)">\n(.*)\n</context>\n?', re.DOTALL)
_DATA_URL: Final = re.compile(r"data:([\w./+-]+);base64,(.*)", re.DOTALL)


def prompt_blocks(blocks: Iterable[Object]) -> list[Object]:
    """The blocks with links and embedded files as what they had been; empty text is left out."""
    restored: list[Object] = []
    links: dict[str, int] = {}
    for block in blocks:
        words = text(block, "text")
        if text(block, "type") != "text":
            restored.append(block)
        elif embedded := _EMBEDDED.fullmatch(words):
            uri, inner = embedded.groups()
            resource: Object = {"type": "resource", "resource": {"uri": uri, "text": inner}}
            if uri in links:
                restored[links.pop(uri)] = resource
            else:
                restored.append(resource)
        elif link := _LINK.fullmatch(words):
            links[link[2]] = len(restored)
            restored.append({"type": "resource_link", "name": link[1] or link[2], "uri": link[2]})
        elif words:
            restored.append(text_block(words))
    return restored


def picture(url: str) -> Object | None:
    """The content block with the picture in a `data:` URL; None for any other URL."""
    found = _DATA_URL.fullmatch(url)
    return image(found[2], found[1]) if found else None
