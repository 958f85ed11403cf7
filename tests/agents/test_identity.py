"""The name under which the sessions of an agent are kept that tells none itself."""

from __future__ import annotations

import os
import shlex

import pytest

from acphold.live.agents.identity import agent_key, display_name, recognize

SAME = [
    ("gemini", ["gemini --acp", "/usr/local/bin/gemini --experimental-acp --debug", "gemini.exe"]),
    (
        "npx some-agent",
        [
            "npx some-agent",
            "npx -y some-agent@1.2",
            "/usr/bin/npx --yes some-agent@latest acp --verbose",
            "npx -p some-agent@2 agent-command",
            "npx --package=some-agent@2 agent-command",
            "npx.cmd -y some-agent@1.3",
        ],
    ),
    ("npx @scope/agent", ["npx -y @scope/agent@0.16.0", "npx @scope/agent"]),
    ("npm @scope/agent", ["npm exec --yes -- @scope/agent@1", "npm exec @scope/agent"]),
    ("npx github:me/agent", ["npx github:me/agent#v1", "npx github:me/agent"]),
    ("pnpm agent", ["pnpm dlx agent@1", "pnpm --package=agent dlx command"]),
    ("bunx agent", ["bunx agent@1", "bunx agent@2 acp"]),
    ("deno npm:@scope/agent", ["deno run -A npm:@scope/agent@1", "deno run npm:@scope/agent"]),
    (
        "uvx agent",
        [
            "uvx agent",
            "uvx agent@1.2",
            "uvx agent==1.2 --port 1",
            "uvx 'agent>=1,<2'",
            "uvx agent[acp]==2",
            "uvx --python 3.12 agent",
            "uvx -p 3.13 --with other agent@latest",
            "uvx --from agent==1.2 agent-acp",
            "uvx --from=agent agent-acp",
        ],
    ),
    ("uv agent", ["uv tool run agent@1", "uv run --project /some/where agent", "uv run agent"]),
    ("uv git+https://host/me/agent", ["uv tool run --from git+https://host/me/agent@v1 agent"]),
    ("pipx agent", ["pipx run agent", "pipx run --spec agent==3 command"]),
    (
        "python -m my.agent",
        [
            "python -m my.agent",
            "/opt/venv/bin/python3 -u -m my.agent --debug",
            "python3.12 -X dev -W error -m my.agent",
            "pypy3 -m my.agent",
            "uv run python -m my.agent",
            "env -u HOME PYTHONPATH=/x python3 -m my.agent",
        ],
    ),
    ("uv -m my.agent", ["uv run -m my.agent"]),
    (
        "docker ghcr.io/me/agent",
        [
            "docker run -i --rm ghcr.io/me/agent:1.2",
            "docker run --rm -it -v /a:/b -e KEY=1 --name box ghcr.io/me/agent acp",
            "docker run -i --network=host ghcr.io/me/agent@sha256:0123abcd",
        ],
    ),
    ("docker localhost:5000/agent", ["docker run localhost:5000/agent:tag"]),
    ("podman agent", ["podman run -i agent:2"]),
    ("docker box", ["docker exec -i box node /x.js"]),
    (
        "gemini",
        [
            "env gemini --acp",
            "env -i KEY=value OTHER= /usr/bin/gemini",
            "/usr/bin/env -u NAME gemini",
            "nohup nice -n 5 gemini --acp",
            "bash -lc 'gemini --acp'",
            "sh -c 'cd /work && . ./setup.sh; KEY=1 exec gemini --acp;'",
            "zsh -c \"env A='b c' gemini\"",
        ],
    ),
    ("npx agent", ["bash -lc 'source ~/.nvm/nvm.sh && npx -y agent@1.2'", "env A=1 npx agent@2"]),
    ("java -jar /opt/agent.jar", ["java -jar /opt/agent.jar", "java -cp /x -jar /opt/agent.jar"]),
    ("python", ["python", "python3.11"]),
    ("env", ["env"]),
    ("sh -c 'half", ['sh -c "\'half"']),
]


@pytest.mark.parametrize(
    ("key", "command"), [(key, command) for key, commands in SAME for command in commands]
)
def test_versions_and_options_of_a_command_do_not_change_whose_sessions_they_are(
    key: str, command: str
) -> None:
    assert agent_key(shlex.split(command), os.getcwd()) == key


def test_a_script_is_known_by_its_file_wherever_it_is_started_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir("/usr")
    for command in ("python agent.py", "python3 -u /usr/agent.py --x", "python3 lib/../agent.py"):
        assert agent_key(shlex.split(command), os.getcwd()) == "python /usr/agent.py"
    assert (
        agent_key(["node", "-r", "mod", "dist/index.js"], os.getcwd()) == "node /usr/dist/index.js"
    )
    assert agent_key(["bash", "run.sh"], os.getcwd()) == "sh /usr/run.sh"
    assert agent_key(["uv", "run", "--with", "x", "agent.py"], os.getcwd()) == "uv /usr/agent.py"
    assert os.getcwd() == "/usr"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["acphold", "agent", "demo"], "acphold agent demo"),
        (
            ["/opt/bin/acphold", "agent", "run", "--log-level=info", "agent.py"],
            "/opt/bin/acphold agent run",
        ),
        (["npx", "-y", "@zed/claude-acp@1.2"], "npx @zed/claude-acp"),
        (["/opt/bin/gemini", "--acp"], "/opt/bin/gemini"),
        (["python3", "agent.py"], "python3"),
        (["acphold"], "acphold"),
    ],
)
def test_errors_tell_agents_of_one_program_apart(command: list[str], name: str) -> None:
    assert display_name(command, os.getcwd()) == name


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ([b"/opt/agent-\xff"], r"agent-\xff"),
        ([b"python3", b"/opt/\xe9.py"], r"python /opt/\xe9.py"),
        ([b"npx", b"\xff\xfe"], r"npx \xff\xfe"),
        ([b"sh", b"-c", b"exec ag\xffent"], r"ag\xffent"),
        ([b"env", b"A=1", b"\xc3\xa9\xff"], "\xe9" + r"\xff"),
    ],
)
def test_a_command_line_that_is_no_text_has_a_name_that_is(command: list[bytes], key: str) -> None:
    words = [os.fsdecode(word) for word in command]
    assert agent_key(words, os.getcwd()) == key
    assert display_name(words, os.getcwd()).encode()


def test_different_agents_have_different_names() -> None:
    commands = (
        "npx agent-one",
        "npx agent-two",
        "uvx agent-one",
        "python -m one",
        "python -m two",
        "node /one/index.js",
        "node /two/index.js",
        "docker run one:latest",
        "docker run two:latest",
        "python -c 'print(1)'",
        "python -c 'print(2)'",
    )
    assert len({agent_key(shlex.split(command), os.getcwd()) for command in commands}) == len(
        commands
    )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("claude-agent-acp", "claude"),
        ("/usr/local/bin/codex-acp --debug", "codex"),
        ("npx -y @zed-industries/claude-code-acp@0.16", "claude"),
        ("npx -y opencode-ai acp", "opencode"),
        ("bunx @github/copilot --acp", "copilot"),
        ("gemini --acp", "gemini"),
        ("env A=1 goose acp", "goose"),
        ("node /x/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js", "claude"),
        ("node /x/node_modules/other/claude-agent-acp/index.js", ""),
        ("node index.js", ""),
        ("docker run -i codex-acp", ""),
        ("python agent.py", ""),
    ],
)
def test_an_agent_is_known_by_the_command_that_starts_it(command: str, name: str) -> None:
    assert recognize(shlex.split(command), os.getcwd()) == name
    assert recognize(shlex.split(command), os.getcwd(), "mine", None) == name
    assert recognize(shlex.split(command), os.getcwd(), "mine", "codex-acp") == "codex"
