// The smaller parts of the page's model, each by itself; run by tests/page/test_model.py.
import assert from "node:assert/strict";
import { test } from "node:test";

const MODEL = "../../../src/acphold/web/page/model";
const { cuts, runs, setBefore } = await import(`${MODEL}/ansi.js`);
const { changes } = await import(`${MODEL}/diffs.js`);
const { markdown, Prose } = await import(`${MODEL}/prose.js`);
const { news } = await import(`${MODEL}/news.js`);
const { patchLines } = await import(`${MODEL}/patches.js`);
const { grouping, homes, lastWords, standing, waits } = await import(`${MODEL}/rows.js`);
const { agentName, called, line, shortPath, size, visible } = await import(`${MODEL}/text.js`);
const { bars, share } = await import(`${MODEL}/usage.js`);
const { held, Timeline } = await import(`${MODEL}/timeline.js`);
const { request, sayer } = await import("../../../src/acphold/web/page/wire/device.js");
const { ago, dayOf, exactly, moment } = await import(`${MODEL}/times.js`);

const place = { seq: 0, at: "" };
const text = (words) => ({ type: "text", text: words });
const kinds = (timeline) => timeline.items.map((item) => item.kind);

test("what reorders or hides a text is written out", () => {
  assert.equal(visible("a\u202eb\r\nc\u200b"), "a\\u202eb\nc\\u200b");
  assert.equal(line("a\n  b\tc"), "a b c");
  assert.equal(line("x".repeat(400)).length, 300);
  assert.equal(called("`ls` **now**"), "ls now");
  assert.equal(called("Why is `*.py` not 2 * 3?"), "Why is *.py not 2 * 3?");
  assert.equal(called(null), "New session");
  assert.equal(agentName("@makers/agent"), "agent");
  assert.equal(shortPath("/a/b/c.py"), "b/c.py");
  assert.deepEqual([size(12), size(12_345), size(1_234_567)], ["12 bytes", "12 kB", "1.2 MB"]);
});

test("how long ago something was", () => {
  const minutes = (count) => ago(0, count * 60_000);
  assert.deepEqual([minutes(0), minutes(5), minutes(125), minutes(3000)], ["now", "5 min", "2 h", "2 d"]);
});

test("a moment that no calendar has is written all the same", () => {
  for (const at of [1.77e18, -1e300, NaN, "never"]) {
    for (const words of [moment(at), exactly(at), dayOf(at)]) assert.ok(words.includes("unknown time"), words);
  }
});

test("a terminal's colours, and what is written over", () => {
  assert.deepEqual(runs("a\u001b[31mb\u001b[0mc").map(({ text, look }) => [text, look]), [["a", ""], ["b", "fore-c1"], ["c", ""]]);
  assert.equal(runs("10%\r100%\nend").map((each) => each.text).join(""), "100%\nend");
  assert.equal(runs("\u001b]0;title\u0007x\u001b[2Jy").map((each) => each.text).join(""), "xy");
});

test("what a terminal showed is cut at lines, and each piece begins in the colour that it is in", () => {
  const text = `${"x".repeat(7990)}\u001b[32m green\nstill green\n${"y\n".repeat(9000)}`;
  const pieces = cuts(text);
  assert.equal(pieces.map(([begin, end]) => text.slice(begin, end)).join(""), text);
  assert.ok(pieces.length > 2 && pieces.every(([begin, end]) => end - begin < 8100 && text[end - 1] === "\n"));
  const [begin, end] = pieces[1];
  assert.equal(runs(setBefore(text, begin) + text.slice(begin, end))[0].look, "fore-c2");
  assert.equal(setBefore("\u001b[31ma\u001b[0mb", 11), "");
  assert.deepEqual(cuts("z".repeat(70_000)), [[0, 60_000], [60_000, 70_000]]);
});

test("a plan stands where the journal has it, also while it is told: at the last time", () => {
  const plan = (...words) => ({ sessionUpdate: "plan", entries: words.map((content) => ({ content, status: "pending" })) });
  const said = (words) => ({ sessionUpdate: "agent_message_chunk", content: text(words) });
  const call = (toolCallId) => ({ sessionUpdate: "tool_call", toolCallId });
  const told = [said("I "), plan("a"), said("begin."), call("t1"), plan("b"), said("Then"), call("t2"), plan("c"), said(" on")];
  const live = new Timeline();
  told.forEach((update, at) => live.add(update, { seq: at + 1, at: "" }));
  // Of the plans the journal keeps the last one.
  const kept = told.map((update, at) => ({ seq: at + 1, at: "", kind: "update", update })).filter(({ update, seq }) => update.sessionUpdate !== "plan" || seq === 8);
  const looks = ({ items }) => items.map((item) => [item.kind, item.seq, item.prose?.text, item.entries?.[0].content]);
  for (const cut of [0, 1, 3, 5, 7]) {
    const [older, replayed] = [new Timeline(), new Timeline()];
    kept.slice(0, cut).forEach((entry) => older.addEntry(entry));
    kept.slice(cut).forEach((entry) => replayed.addEntry(entry));
    replayed.prepend(older);
    assert.deepEqual(looks(replayed), looks(live));
  }
  assert.deepEqual(kinds(live), ["said", "tool", "said", "tool", "plan", "said"]);
  const { key } = live.items[4];
  live.add(plan("d"), place);
  assert.deepEqual([live.items.at(-1).key, kinds(live).filter((each) => each === "plan").length], [key, 1]);
  // A page of before may still have one.
  const [older, later] = [new Timeline(), new Timeline()];
  older.add(plan("a"), { seq: 1, at: "" });
  later.add(plan("b"), { seq: 2, at: "" });
  later.prepend(older);
  assert.deepEqual(looks(later), [["plan", 2, undefined, "b"]]);
});

test("a failed session looks failed, seen or not", () => {
  const row = { outcome: "failed", unseen: true, live: null };
  assert.deepEqual(standing(row), ["unseen failed", "failed"]);
  assert.deepEqual(standing({ ...row, unseen: false }), ["failed", "failed"]);
  assert.deepEqual(standing({ ...row, outcome: "completed" }), ["unseen", "done"]);
  assert.deepEqual(standing({ ...row, outcome: "cancelled" }), ["unseen stopped", "cancelled"]);
  assert.deepEqual(standing({ ...row, outcome: "cancelled", unseen: false, live: { state: "idle" } }), ["stopped", "cancelled"]);
  assert.deepEqual(standing({ ...row, live: { state: "waiting" } }), ["waiting", "waiting for you"]);
  assert.deepEqual(standing({ ...row, movedTo: "anna@build" }), ["rest", "moved to anna@build"]);
});

const now = new Date(2026, 2, 11, 15).getTime();  // a Wednesday
const at = (...then) => new Date(...then).toISOString();
const listed = (sessionId, updatedAt, more = {}) => ({ sessionId, cwd: "/w", title: sessionId, updatedAt, createdAt: updatedAt, live: null, outcome: null, unseen: false, ...more });
const order = (rows) => grouping()(rows)[0].places.map(({ row, depth }) => ">".repeat(depth) + row.sessionId);

test("a row says how many prompts wait, and until when", () => {
  const heldUntil = "2027-01-02T03:10:00.000Z";
  assert.match(waits({ queued: 1, held: "limited", heldUntil }), /^1 queued, paused until .*\d:\d\d/);
  assert.match(waits({ queued: 2, held: "limited", heldUntil }), /^2 queued, paused until /);
  assert.equal(waits({ queued: 2, held: "failed", heldUntil: null }), "2 queued, paused");
});

test("an end that an agent makes up is shown as far as it can be", () => {
  const timeline = new Timeline();
  const tell = (turn) => timeline.addLive({ sessionUpdate: "session_info_update", _meta: { "acphold/turn": turn } }, place);
  tell({ outcome: "limited", message: {}, resetsAt: "soon", kind: "said" });
  const [{ kind, outcome, message, resetsAt }] = timeline.items;
  assert.deepEqual([kind, outcome, message, resetsAt], ["end", "limited", undefined, undefined]);
});

test("projects with something that waits come first", () => {
  let count = 0;
  const row = (cwd, live = null) => listed(`${count++}`, at(2026, 2, 11), { cwd, live });
  const groups = grouping()([row("/a/one"), row("/a/two"), row("/a/two", { state: "waiting" })]);
  assert.deepEqual(groups.map((group) => group.name), ["two", "one"]);
  assert.equal(standing(groups[0].places[0].row)[0], "waiting");
  assert.deepEqual(grouping()([row("/a/app"), row("/b/app"), row("/b/c")]).map((group) => group.name), ["a/app", "b/app", "c"]);
});

test("of a list that has changed only the projects with something else in them are made anew", () => {
  const byProject = grouping();
  const rows = ["/a/one", "/a/one", "/b/two", "/c/three"].map((cwd, n) => listed(`s${n}`, at(2026, 2, 11, n), { cwd }));
  const before = byProject(rows);
  const after = byProject(rows.with(2, { ...rows[2], live: { state: "running" } }));
  assert.deepEqual(after.map(({ cwd }) => cwd), ["/b/two", "/a/one", "/c/three"]);
  assert.deepEqual(after.map((project) => before.includes(project)), [false, true, true]);
  const [, , again] = byProject([...rows.slice(0, 3), listed("other", at(2026, 2, 11), { cwd: "/x/one" })]);
  assert.equal(again.name, "x/one");
  assert.deepEqual(byProject([]), []);
});

test("a day has the name that people give it", () => {
  const names = [[2026, 2, 11, 0, 1], [2026, 2, 10, 23, 59], [2026, 2, 9], [2026, 2, 5], [2026, 2, 4], [2025, 2, 4]].map((then) => dayOf(at(...then), now));
  assert.deepEqual(names, ["Today", "Yesterday", "Monday", "Thursday", "Mar 4", "Mar 4, 2025"]);
  assert.equal(dayOf(at(2026, 2, 12), now), "Today");  // of a clock that is ahead
});

test("the last changed session of a project stands first, and what is new before it", () => {
  assert.deepEqual(
    order([listed("a", at(2026, 2, 11, 9)), listed("old", at(2026, 2, 9, 9)), listed("new", at(2026, 2, 9, 9), { unseen: true }), listed("b", at(2026, 2, 11, 12)), listed("c", at(2026, 2, 10, 12))]),
    ["new", "b", "a", "c", "old"],
  );
});

test("a fork stands below its origin, where the newest of them stands", () => {
  const fork = (sessionId, origin, ...then) => listed(sessionId, at(...then), { origins: [{ sessionId: "first" }, { sessionId: origin }] });
  const rows = [listed("one", at(2026, 2, 9, 9)), fork("two", "one", 2026, 2, 11, 9), fork("three", "two", 2026, 2, 11, 8), fork("alone", "gone", 2026, 2, 10, 9)];
  assert.deepEqual(order(rows), ["one", ">two", ">>three", "alone"]);
  const there = { ...fork("there", "one", 2026, 2, 8), cwd: "/w-copy", createdAt: at(2026, 2, 8) };
  const [{ cwd, places }] = grouping()([...rows, there]);
  assert.deepEqual([cwd, places.filter(({ depth }) => depth === 1).map(({ row, number }) => [row.sessionId, number])], ["/w", [["two", 2], ["there", 1]]]);
  assert.equal(homes([rows[0], there])(there), "/w");
  const tree = listed("tree", at(2026, 2, 9), { cwd: "/w-tree", project: "/w" });
  assert.deepEqual(grouping()([rows[0], tree]).map((group) => group.places.length), [2]);
  assert.equal(homes([tree])(tree), "/w");  // the folder of a new session
  const moved = listed("moved", at(2026, 2, 11), { origins: [{ sessionId: "moved" }] });
  assert.deepEqual(order([moved, fork("a", "b", 2026, 2, 11), fork("b", "a", 2026, 2, 11)]).length, 3);  // each once
});

test("a row has the last words of its conversation where they say more than its title", () => {
  assert.equal(lastWords({ title: "Run the tests", said: "All *.py of 2 * 3 pass." }), "All *.py of 2 * 3 pass.");
  assert.equal(lastWords({ title: "Run the `tests`", said: "Run the tests" }), "");
  assert.equal(lastWords({ title: "Run the tests" }), "");
});

test("a fence is code while it is open, and a text is cut at its paragraphs", () => {
  markdown.lex = (whole) => whole.split(/(?<=\n\n)/).map((raw) => ({ type: "paragraph", raw }));
  const prose = new Prose("One.\n\n");
  prose.add("Two.\n```js\nlet");
  assert.deepEqual(prose.blocks().map((block) => block.kind), ["text", "code"]);
  prose.add(" a;\n```\nEnd.");
  const [, code, end] = prose.blocks();
  assert.deepEqual([code.language, code.pieces.join(""), code.isOpen], ["js", "let a;\n", false]);
  assert.equal(end.text, "End.");
  assert.equal(prose.text, "One.\n\nTwo.\n```js\nlet a;\n```\nEnd.");
});

test("a long text is gone through from its end up, and from a place down", () => {
  markdown.lex = (whole) => [{ type: "paragraph", raw: whole }];
  const prose = new Prose("A paragraph of it.\n\n".repeat(2000));
  assert.equal(prose.blocks().length, prose.end + 1);  // and what has no end yet
  assert.equal(prose.above(3000), prose.end);
  assert.equal(prose.above(3000, prose.end), prose.end - 1);
  assert.equal(prose.below(3000, 0), 1);
  assert.equal(prose.below(Infinity, 0), prose.end);
  const code = new Prose(`\`\`\`\n${"a line\n".repeat(9000)}\`\`\`\n`).blocks()[0];
  assert.ok(code.pieces.length > 5 && code.pieces.every((piece) => piece.length <= 8000));
  assert.equal(code.pieces.join(""), "a line\n".repeat(9000));
});

test("of thousands of marks none is an emphasis", () => {
  let asked = 0;
  markdown.lex = () => (asked++, []);
  assert.equal(new Prose("_a*".repeat(1500)).blocks()[0].tokens, null);
  assert.equal(asked, 0);
});

test("a text goes on behind a plan, and behind the end of its turn in the message itself", () => {
  const timeline = new Timeline();
  const say = (words) => timeline.add({ sessionUpdate: "agent_message_chunk", content: text(words) }, place);
  say("a");
  timeline.add({ sessionUpdate: "plan", entries: [] }, place);
  say("b");
  timeline.endTurn({ outcome: "completed" }, place);
  say("c");
  assert.deepEqual(kinds(timeline), ["said", "plan", "said", "end"]);
  assert.equal(timeline.items[2].isPart, true);
  assert.equal(timeline.items[2].prose.text, "bc");
});

test("what is told live of the turns of others ends them once", () => {
  const timeline = new Timeline();
  const prompt = (id) => timeline.addLive({ sessionUpdate: "user_message_chunk", messageId: id, content: text("x") }, place);
  prompt("acphold-1");
  prompt("acphold-1");
  prompt("acphold-4");
  timeline.addLive({ sessionUpdate: "session_info_update", _meta: { "acphold/turn": { outcome: "failed", message: "no" } } }, place);
  assert.deepEqual(kinds(timeline), ["prompt", "end", "prompt", "end"]);
  assert.deepEqual(timeline.items.map((item) => item.outcome), [undefined, "completed", undefined, "failed"]);
  assert.equal(timeline.items[0].content.length, 2);
});

test("who is answered once is asked no more", () => {
  const timeline = new Timeline();
  timeline.addQuestion("q", "session/request_permission", {}, place);
  timeline.addAnswer({ question: "q", outcome: "answered" }, place);
  timeline.addQuestion("q", "session/request_permission", {}, place);
  assert.deepEqual(kinds(timeline), ["question"]);
  assert.equal(timeline.items[0].answer.outcome, "answered");
});

test("what is far above is dropped, and read again it is where it was", () => {
  const entries = Array.from({ length: 10 }, (_, at) => ({ seq: at + 1, kind: "update", at: "", update: { sessionUpdate: "tool_call", toolCallId: `t${at}`, title: "x".repeat(10) } }));
  const timeline = new Timeline();
  for (const entry of entries) timeline.addEntry(entry);
  assert.equal(timeline.trim(4), 7);
  assert.equal(timeline.tool("t0"), undefined);
  assert.equal(timeline.items.reduce((sum, item) => sum + held(item), 0), 40);
  timeline.addEntry({ seq: 11, kind: "update", at: "", update: { sessionUpdate: "tool_call_update", toolCallId: "t0", status: "failed" } });
  const older = new Timeline();
  for (const entry of entries.slice(0, 6)) older.addEntry(entry);
  timeline.prepend(older);
  assert.equal(timeline.items.length, 10);
  assert.deepEqual(timeline.items[0].fields, { title: "x".repeat(10), status: "failed" });
});

test("of a call with long output a page may have the beginning, until the call says more", () => {
  const update = { sessionUpdate: "tool_call", toolCallId: "t", content: [text("a".repeat(10_000))], _meta: { "acphold/whole": [9_000_000, 12] } };
  const cut = { seq: 7, bytes: 9_000_000 };
  const timeline = new Timeline();
  timeline.addEntry({ seq: 7, kind: "update", at: "", update });
  assert.deepEqual(timeline.tool("t").cut, cut);
  timeline.addEntry({ seq: 8, kind: "update", at: "", update: { sessionUpdate: "tool_call_update", toolCallId: "t", status: "failed" } });
  assert.deepEqual(timeline.tool("t").cut, cut);
  const later = new Timeline();
  later.addEntry({ seq: 9, kind: "update", at: "", update: { sessionUpdate: "tool_call_update", toolCallId: "t", title: "T" } });
  later.prepend(timeline);
  assert.deepEqual(later.tool("t").cut, cut);
  later.addEntry({ seq: 10, kind: "update", at: "", update: { sessionUpdate: "tool_call_update", toolCallId: "t", content: [text("b")] } });
  assert.equal(later.tool("t").cut, undefined);
});

test("of a short change all is shown, whatever an agent says of it", () => {
  const change = { type: "diff", path: "/a", oldText: "a", newText: "b" };
  const update = { sessionUpdate: "tool_call", toolCallId: "t", content: [change], _meta: { "acphold/whole": [9_000_000, 12] } };
  const timeline = new Timeline();
  timeline.addEntry({ seq: 7, kind: "update", at: "", update });
  assert.equal(timeline.tool("t").cut, undefined);
});

test("a turn that a browser was told to keep is asked for again, as it may have been forgotten", (t) => {
  const asked = t.mock.method(globalThis, "fetch", () => {});
  request("/sessions/s/entries?before=9");
  request("/browser", { cache: "no-store" });
  assert.deepEqual(asked.mock.calls.map(({ arguments: [, how] }) => how.cache), ["no-cache", "no-store"]);
});

test("a prompt is yours if it is this device's user's, and of whoever runs the server if it names nobody", () => {
  globalThis.localStorage = { getItem: () => JSON.stringify({ user: "bert", server: "ada@home" }) };
  assert.deepEqual(["bert", "eve", "", null].map(sayer), ["You", "eve", "ada@home", "ada@home"]);
  globalThis.localStorage = { getItem: () => JSON.stringify({ user: null, server: "ada@home" }) };
  assert.deepEqual(["bert", "", null].map(sayer), ["bert", "You", "You"]);
});

test("a patch becomes lines with the numbers of both sides, and nothing in it moves what is around it", () => {
  const patch = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -4,2 +4,3 @@\n one\n-two\r\n+2\u202e\n+\ra\n@@ -20,1 +21,0 @@\n--- old\n\\ No newline at end of file\n";
  assert.deepEqual(patchLines(patch).map(({ sign, text, before, after }) => [sign, text, before, after]), [
    [" ", "one", 4, 4], ["-", "two", 5, 0], ["+", "2\\u202e", 0, 5], ["+", "\u240da", 0, 6], ["@", "", 0, 0], ["-", "-- old", 20, 0],
  ]);
  assert.ok(patchLines(patch, false).every(({ before, after }) => before === 0 && after === 0));
  assert.deepEqual(patchLines(""), []);
  assert.deepEqual(patchLines("@@ -0,0 +1 @@\n+git names no count of one").map(({ sign, after }) => [sign, after]), [["+", 1]]);
});

test("news are what failed and what is done unseen, without what is asked above", () => {
  const row = (sessionId, more) => ({ sessionId, outcome: null, unseen: false, live: null, ...more });
  const rows = [row("a"), row("done", { unseen: true }), row("b"), row("cron", { byProgram: true, unseen: true }), row("bad", { unseen: true, outcome: "failed" }), row("asks", { live: { state: "waiting" }, openQuestions: [{}] })];
  const ids = (found) => found.map((each) => each.sessionId);
  assert.deepEqual(ids(news(rows)), ["bad", "done"]);
  const many = Array.from({ length: 30 }, (_, at) => row(`${at}`, { unseen: at % 2 === 0 }));
  assert.equal(news(many).length, 15);
});

test("a bar that is a thousand times longer is cut, and the others keep their lengths among each other", () => {
  const found = bars([50, 42_000, 100, 25, 0]);
  assert.deepEqual(found.lengths, [37.5, 100, 75, 18.75, 0]);
  assert.deepEqual([50, 42_000].map(found.isCut), [false, true]);
  assert.equal(found.longest, 100);
  assert.deepEqual(bars([10, 20, 5]).lengths, [50, 100, 25]);  // nothing is cut without need
  assert.deepEqual(bars([1000, 1]).lengths, [100, 0.1]);  // one of two is no exception
  assert.deepEqual(bars([]).lengths, []);
  assert.deepEqual(bars([0, 0]).lengths, [0, 0]);
});

test("a share says when it is nearly nothing, or nearly all", () => {
  assert.deepEqual([share(1, 4), share(1, 1000), share(999, 1000), share(5, 5), share(0, 5), share(0, 0)], ["25%", "<1%", ">99%", "100%", "0%", "0%"]);
});

test("of an edit of a long file the lines around it are compared, and no others", () => {
  const old = "\nsame\n".repeat(1_000_000);
  const at = old.length / 2;
  const began = performance.now();
  const found = changes({ path: "f", oldText: old, newText: `${old.slice(0, at)}new\n${old.slice(at)}` });
  assert.ok(performance.now() - began < 2_000);
  assert.deepEqual([found.added, found.removed, found.isCut], [1, 0, false]);
  assert.deepEqual(found.lines.filter(({ sign }) => sign === "+"), [{ sign: "+", text: "new", before: 0, after: 1_000_001 }]);
  assert.ok(found.lines.length < 10);
  const other = changes({ path: "f", oldText: old, newText: old.replaceAll("s", "d") });
  assert.deepEqual([other.added, other.isCut], [2_000_000, true]);
  assert.ok(other.lines.length <= 5_000);
});

test("an edit at an end of a file begins there", () => {
  for (const [oldText, newText, lines] of [
    ["\na\nb", "x\na\nb", ["-", "+x", " a", " b"]],
    ["a\n", "a\nb\n", [" a", "+b"]],
    ["", "a\n", ["+a"]],
    ["a\nb\nc\nd\ne\nf\n", "b\nc\nd\ne\nf\n", ["-a", " b", " c", " d"]],
  ]) {
    assert.deepEqual(changes({ path: "f", oldText, newText }).lines.map(({ sign, text }) => sign + text), lines);
  }
});
