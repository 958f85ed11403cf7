// What holds of all sources of the page; run by tests/page/test_model.py.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const PAGE = join(dirname(fileURLToPath(import.meta.url)), "../../../src/acphold/web/page");
const FOLDERS = ["model", "wire", "view", "worker"];

/** @type {Map<string, string>} */
const sources = new Map();
for (const folder of ["", ...FOLDERS]) {
  for (const name of readdirSync(join(PAGE, folder)).filter((each) => each.endsWith(".js"))) {
    sources.set(join(folder, name), readFileSync(join(PAGE, folder, name), "utf8"));
  }
}

/** What a source imports, ours by its path. */
const imports = (path) =>
  [...sources.get(path).matchAll(/^(?:import|export)\b[^"';]*?(?:from )?"([^"]+)";/gm)].map(([, named]) => (named.startsWith(".") ? normalize(join(dirname(path), named)) : named));

test("sources are found, and what they import is there", () => {
  assert.ok(sources.size > 50);
  for (const path of sources.keys()) {
    for (const named of imports(path)) assert.ok(!named.endsWith(".js") || sources.has(named), `${path} imports ${named}`);
  }
});

test("no module imports itself, however far around", () => {
  const done = new Set();
  const visit = (path, way) => {
    assert.ok(!way.includes(path), [...way.slice(way.indexOf(path)), path].join(" → "));
    if (done.has(path) || !sources.has(path)) return;
    for (const named of imports(path)) visit(named, [...way, path]);
    done.add(path);
  };
  for (const path of sources.keys()) visit(path, []);
});

test("the model and the wire know no view", () => {
  for (const path of sources.keys()) {
    if (/^(model|wire)\//.test(path)) for (const named of imports(path)) assert.ok(!/^(view|worker)\//.test(named), `${path} imports ${named}`);
  }
});

test("no text becomes HTML or a script, and nothing is compared loosely", () => {
  const refused = /\balert\(|\bconfirm\(|\bprompt\("|\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|new Function|vibrate|dangerouslySetInnerHTML|debugger)\b|[^=!]==[^=]|!=[^=]|^\s*var /m;
  for (const [path, text] of sources) {
    const code = text.replace(/\/\*[^]*?\*\/|^\s*\/\/.*$|\s\/\/ .*$/gm, "");
    assert.equal(refused.exec(code)?.[0], undefined, path);
  }
});

test("words, cuts and lists of characters that the terminal has too are made of its own", () => {
  const refused = {
    "a list of characters": /\[[^\]\n]*\\[ux](?!001b|0007|0060)[^\]\n]*\]/,
    "a cut in a line": /\b(line|visible|pathLine|exact)\(.*, [0-9_]+\)/,
    "an amount that is shown": /^const (MOST|FIRST|MORE|SHOWN|CUT)\w*(?<!_MS) = [0-9_.]{4,}/m,
    "a word for a kind, a status, an outcome or an answer": /\b(execute|in_progress|end_turn|max_tokens|allow_once|allow_always|reject_once|reject_always|interrupted): "/,
  };
  // How much of one text is drawn, kept and looked through in one task says nothing to a person.
  const own = { "model/prose.js": "const MOST", "model/display_terminals.js": "const MOST", "model/attachments.js": "const MOST", "model/session.js": "const MOST", "model/diffs.js": "const MOST" };
  for (const [path, text] of sources) {
    if (!/^(model|view)\//.test(path) || path === "model/tables.js") continue;
    for (const [what, pattern] of Object.entries(refused)) {
      const found = pattern.exec(text)?.[0];
      assert.ok(!found || found.startsWith(own[path] ?? "\0"), `${path}: ${what}: ${found}`);
    }
  }
});
