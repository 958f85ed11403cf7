"""What goes into a model and what comes out of it, as words: prompts, titles, errors, names."""

from __future__ import annotations

import base64

import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelHTTPError,
    UsageLimitExceeded,
    UserError,
)
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)

from holdfast.agents.model.compacting import later_half
from holdfast.agents.model.failing import LONGEST, Failure, meaning
from holdfast.agents.model.prompting import user_content
from holdfast.agents.model.secrecy import without_keys, without_lookalikes
from holdfast.agents.model.servers import LONGEST_NAME, named
from holdfast.agents.model.sketches import partial_arguments, sketch
from holdfast.agents.model.titling import excerpt, tidy
from holdfast.agents.stopping import MaxTurnRequests, Refusal
from holdfast.errors import InvalidParamsError, ModelError
from holdfast.mcp import Tool
from holdfast.schema import (
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

PNG = base64.b64encode(b"\x89PNG").decode()

# -- prompts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (TextContent(text="hi"), "hi"),
        (ResourceLink(name="a.py", uri="file:///w/a%20b.py"), "[a.py](/w/a b.py)"),
        (ResourceLink(name="p", uri="https://x/y", description="why"), "[p](https://x/y): why"),
        (
            EmbeddedResource(resource=TextResourceContents(text="x = 1", uri="file:///w/a.py")),
            '<resource uri="/w/a.py">\nx = 1\n</resource>',
        ),
        (
            EmbeddedResource(
                resource=BlobResourceContents(blob="aGk=", uri="mem:x", mime_type="text/x")
            ),
            '<resource uri="mem:x">\nhi\n</resource>',
        ),
        (
            EmbeddedResource(resource=BlobResourceContents(blob="/w==", uri="mem:x")),
            "(mem:x: 1 bytes of unknown type, not shown)",
        ),
    ],
)
def test_blocks_become_text(block: ContentBlock, text: str) -> None:
    assert user_content([block]) == [text]


@pytest.mark.parametrize(
    "block",
    [
        ImageContent(data=PNG, mime_type="image/png"),
        EmbeddedResource(
            resource=BlobResourceContents(blob=PNG, uri="file:///w/a.png", mime_type="image/png")
        ),
    ],
)
def test_images_are_seen(block: ContentBlock) -> None:
    [content] = user_content([block])
    assert isinstance(content, BinaryContent)
    assert content.data == b"\x89PNG"
    assert content.media_type == "image/png"


def test_an_image_that_is_not_base64_is_refused_with_its_place() -> None:
    broken = ImageContent(data="%%%", mime_type="image/png")
    with pytest.raises(InvalidParamsError, match=r"prompt\[1\]\.data is not base64"):
        user_content([TextContent(text="look"), broken])


# -- titles --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ('"Fix the build."', "Fix the build"),
        ("\n\n# Fix the build\nBecause it is broken", "Fix the build"),
        ("**Fix**", "Fix"),
        ("", ""),
        ("x" * 200, "x" * 79 + "…"),
    ],
)
def test_a_title_is_one_clean_line(said: str, title: str) -> None:
    assert tidy(said) == title


def test_a_title_is_made_from_both_sides() -> None:
    messages: list[ModelMessage] = [
        ModelRequest(parts=[UserPromptPart(["why", "how"])]),
        ModelResponse(parts=[TextPart("because")]),
    ]
    assert excerpt(messages) == "Person: why\nhow\n\nAgent: because"


# -- errors --------------------------------------------------------------------------------


def http_error(status: int, body: object) -> ModelHTTPError:
    return ModelHTTPError.for_category(
        ModelAuthenticationError if status == 401 else None,
        status_code=status,
        model_name="gpt",
        body=body,
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (http_error(418, {"message": "short"}), "m: the service answered 418 I'm a Teapot: short"),
        (http_error(500, {"error": {"message": "deep"}}), "500 Internal Server Error: deep"),
        (http_error(500, '[{"error": {"message": "list"}}]'), "Server Error: list"),
        (http_error(599, None), "m: the service answered 599"),
        (http_error(401, {"message": "no"}), "no — check the API key"),
        (ModelConnectionError("gpt", "Connection refused"), "m: no answer: Connection refused"),
        (UserError("Set the `X_API_KEY`"), "m cannot be used: Set the `X_API_KEY`"),
    ],
)
def test_errors_of_the_service_are_plain(error: Failure, words: str) -> None:
    told = meaning(error, "m")
    assert isinstance(told, ModelError)
    assert words in str(told)
    assert told.status == (error.status_code if isinstance(error, ModelHTTPError) else None)


def test_long_errors_are_cut() -> None:
    assert len(str(meaning(http_error(400, {"message": "x" * 9999}), "m"))) < LONGEST + 100


@pytest.mark.parametrize(
    ("error", "ending"),
    [(UsageLimitExceeded("limit"), MaxTurnRequests), (ContentFilterError("no"), Refusal)],
)
def test_some_errors_are_ends(error: Failure, ending: type[Exception]) -> None:
    assert isinstance(meaning(error, "m"), ending)


def test_keys_are_taken_out_of_what_is_shown() -> None:
    environment = {"OPENAI_API_KEY": "sk-abcdefghij", "HOME": "/home/somebody", "TOKEN": "short"}
    text = "key sk-abcdefghij in /home/somebody, short"
    assert without_keys(text, environment) == "key [OPENAI_API_KEY] in /home/somebody, short"
    assert without_lookalikes("Incorrect API key: sk-pr*******9xyz.") == "Incorrect API key: […]"
    assert without_lookalikes("https://me:secret@host/v1") == "https://[…]@host/v1"


def test_the_key_in_an_error_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "0123456789abcdef")
    error = ModelAPIError("gpt", "cannot use 0123456789abcdef")
    assert "0123456789abcdef" not in str(meaning(error, "m"))


# -- names and looks -----------------------------------------------------------------------


def test_tools_of_servers_have_names_that_services_take() -> None:
    schema: dict[str, object] = {"type": "object"}
    tools = tuple(
        Tool(name=name, server=server, input_schema=schema)
        for server, name in [("my server", "do.it"), ("my_server", "do_it"), ("s", "x" * 99)]
    )
    names = list(named(tools))
    assert names[:2] == ["my_server__do_it", "my_server__do_it_2"]
    assert len(names[2]) == LONGEST_NAME


def test_a_call_is_drawn_from_what_has_arrived_of_it() -> None:
    assert sketch("write", partial_arguments('{"pa')).title == "Write"
    assert sketch("write", partial_arguments('{"path": "src/ma')).title == "Write"
    look = sketch("write", partial_arguments('{"path": "src/main.py", "content": "impo'))
    assert (look.title, look.kind, look.path) == ("Write src/main.py", "edit", "src/main.py")
    assert partial_arguments("[1") == {}
    assert partial_arguments("nonsense") == {}


def test_the_later_half_of_a_conversation_begins_with_the_person() -> None:
    messages: list[ModelMessage] = []
    for number in range(4):
        messages.append(ModelRequest(parts=[UserPromptPart(f"prompt {number}")]))
        messages.append(ModelResponse(parts=[TextPart(f"answer {number}")]))
    rest = later_half(messages[1:])
    assert rest[0].parts == messages[4].parts
    assert rest[-1].parts == messages[-1].parts
