"""Pieces of texts that are slow to read if they are repeated."""

from __future__ import annotations

from typing import Final

SLOW: Final = (
    *("sk-ant-", "-eyJ", "xoxb-", "ghp_", "T3BlbkFJ", "AKIA", "sk-ant-ghp_gsk_hf_npm_"),
    *("password=", "password='", "password: ", "--password ", "| password ", "a.token ", "token "),
    *("curl -u ", 'curl -u "', "mysql -p", "login -p '", "://a:", "?key=", "bearer ", "Cookie: a="),
    *("-----BEGIN PRIVATE KEY-----\n", "A" * 70 + "\n-----END PRIVATE KEY-----", "A" * 75 + " "),
    *("LS0tLS1CRUdJTi", "$argon2i$a", "$1$aa", "pbkdf2_sha1$1$", "kind: Secret\ndata:\n a: b"),
    *("words: abc ", "IDENTIFIED BY ", "Private-Lines: 1 ", "hooks.slack.com/a/", "A" * 22 + " "),
    *("/home/a ", "C:\\Users\\a b ", "%2Fhome%2F", "a@a.", "a.", "1.1.", "::", "aa:bb:"),
    *("\\x1b]", "\x1b[", "\u200b", "a\u200b", "\\", "\\n", " ", "\n", "\t ", "a ", "…", "word… "),
    *("{", "[", '{"a":', "{}", '{"a":[', '"', '\\"', ",", "}{", "null ", "\0"),
    *("`", "``` ", "**a", "_a", "[a](", "<aaaa>", "<a b>", "~~~\n", "# ", "a/b/", "please "),
    *("x\n", "- a\n+ b\n", "@@ -1 +1 @@\n", "--- a\n+++ b\n"),
)
