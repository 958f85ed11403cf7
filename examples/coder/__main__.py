"""The coding agent on stdio, for an editor: `python examples/coder --model openai:gpt-5`."""

from __future__ import annotations

from argparse import ArgumentParser

from agent import coder

parser = ArgumentParser(prog="coder", description="A coding agent on stdio, for an ACP editor.")
parser.add_argument(
    "--model",
    action="append",
    default=[],
    metavar="VENDOR:MODEL",
    help="such as openai:gpt-5; more than once to choose from several (else: CODER_MODEL)",
)
coder(*parser.parse_args().model).run()
