"""Home folders and addresses, in the words and actions of agents."""

from __future__ import annotations

import pytest

from acphold.safety.redaction.redactor import personal_rules


def without(text: str, home: str = "/root") -> str:
    for rule in personal_rules(home):
        pieces, end = [], 0
        for found in rule.pattern.finditer(text):
            note = rule.note if rule.is_personal(found[0]) else found[0]
            pieces += [text[end : found.start()], note]
            end = found.end()
        text = "".join([*pieces, text[end:]])
    return text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cat /home/ada/project/x.py", "cat ~/project/x.py"),
        ("/Users/ada", "~"),
        ("file:///home/ada/x", "file://~/x"),
        ("/var/home/ada/x /mnt/c/Users/ada/x", "~/x ~/x"),
        (r"C:\Users\Ada Lovelace\x", r"~\x"),
        (r'{"path":"C:\\Users\\ada\\x"}', r'{"path":"~\\x"}'),
        ("~/.claude/projects/-home-ada-project/x", "~/.claude/projects/-~-project/x"),
        ("file%3A%2F%2Fhome%2Fada%2Fx", "file%3A%2F~%2Fx"),
        ("/srv/home page", "/srv/home page"),
        ("x/home/ada", "x/home/ada"),
    ],
)
def test_home_folders_lose_their_owner(text: str, shown: str) -> None:
    assert without(text) == shown


def test_our_own_home_folder_is_known_wherever_it_is() -> None:
    home = "/data/people/ada"
    assert without(f"{home}/x /data/people/adam/x", home) == "~/x /data/people/adam/x"
    assert without("/etc/passwd", "/") == "/etc/passwd"


@pytest.mark.parametrize(
    "address",
    [
        "ada@example.org",
        "ada.lovelace+x@mail.example.co.uk",
        "10.0.0.5",
        "192.168.1.17",
        "93.184.216.34",
        "fe80::1",
        "2001:db8::ff00:42:8329",
        "aa:bb:cc:dd:ee:ff",
        "AA-BB-CC-DD-EE-FF",
    ],
)
def test_addresses_are_taken_out(address: str) -> None:
    assert address not in without(f"see {address}, or <{address}>.")


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:8080",
        "0.0.0.0",
        "[::1]:80",
        "at 12:30:45",
        "std::vector<int>",
        "v1.2.3",
        "1.2.3.4.5",
        "999.1.1.1",
        "@scope/package@1.2.3",
        "a @ b",
    ],
)
def test_what_is_no_address_of_anybody_is_left(text: str) -> None:
    assert without(text) == text
