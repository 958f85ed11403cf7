// How sessions stand, and in what order they are listed.
import { CUT, ENDINGS } from "./tables.js";
import { baseName, called, line, shortPath } from "./text.js";
import { byTime, moment } from "./times.js";

/** @typedef {import("../wire/pages.js").Row} Row */

/** How a session stands, for its colour and in words: a colour alone says nothing to who cannot see it. @param {Row | undefined} row @returns {[string, string]} */
export function standing(row) {
  const state = row?.live?.state;
  if (state === "waiting") return ["waiting", "waiting for you"];
  if (state === "running") return ["running", "running"];
  if (row?.movedTo) return ["rest", `moved to ${line(row.movedTo, CUT.name)}`];
  if (row?.archived) return ["rest", "archived"];
  const ended = ENDINGS[row?.outcome ?? ""];
  const kind = row?.outcome === "cancelled" ? "stopped" : "failed";
  if (ended) return [row?.unseen ? `unseen ${kind}` : kind, ended];
  if (row?.unseen) return ["unseen", "done"];
  return state === "idle" ? ["idle", "idle"] : ["rest", ""];
}

/** The queued prompts in a session. @param {Row} row */
export const waits = ({ queued, held, heldUntil }) => `${queued} queued${heldUntil ? `, paused until ${moment(heldUntil)}` : held === "elsewhere" ? ", planned elsewhere" : held ? ", paused" : ""}`;

/** A session in the list, how deep it stands below its origin, and which of its forks it is, 0 of the only one. @typedef {{row: Row, depth: number, number: number}} Place */

/** The last words of a conversation, where they say more than its title. @param {Row} row */
export function lastWords(row) {
  const said = line(row.said, CUT.words);
  return said.startsWith(called(row.title).replace(/…$/, "")) ? "" : said;
}

const ORDER = ["waiting", "running", "unseen", "idle", "failed", "stopped", "rest"];

/** What is no news has the last rank. */
const OLD = 3;

/** @param {Row} row */
const rank = (row) => Math.min(OLD, ORDER.indexOf(standing(row)[0].split(" ")[0]));

/** Stands for the folder of what somebody has pinned, which comes first. */
const PINNED = "Pinned";

/** @typedef {{cwd: string, name: string, places: Place[]}} Project */

/**
 * Groups rows by project, the one with something live first, then the one that changed last. In each,
 * what waits, works or is new stands first, then what changed last; forks stand below their origin,
 * also those that have a folder of their own.
 *
 * What is returned keeps its projects: one with the same rows is the same as before.
 * @returns {(rows: Row[]) => Project[]}
 */
export function grouping() {
  /** @type {Map<string, {its: Row[], best: number, project: Project}>} */
  let kept = new Map();
  return (rows) => {
    const home = homes(rows);
    const groups = groupBy(rows, (row) => (row.pinned ? PINNED : home(row)));
    const names = groupBy([...groups.keys()], baseName);
    const before = kept;
    kept = new Map();
    for (const [cwd, its] of groups) {
      const was = before.get(cwd);
      const name = (names.get(baseName(cwd)) ?? []).length > 1 ? shortPath(cwd) : baseName(cwd);
      const isSame = was?.project.name === name && was.its.length === its.length && was.its.every((row, at) => row === its[at]);
      kept.set(cwd, isSame ? was : { its, best: cwd === PINNED ? -1 : Math.min(...its.map(rank)), project: { cwd, name, places: inOrder(its) } });
    }
    return [...kept.values()].sort((a, b) => a.best - b.best).map(({ project }) => project);
  };
}

/** @template T @param {T[]} all @param {(each: T) => string} by @returns {Map<string, T[]>} */
function groupBy(all, by) {
  /** @type {Map<string, T[]>} */
  const groups = new Map();
  for (const each of all) {
    const name = by(each);
    const group = groups.get(name);
    if (group) group.push(each);
    else groups.set(name, [each]);
  }
  return groups;
}

/** The folder in which a session stands, in the main work tree of its repository: of a fork, that of its origin, as far as that is known. @param {Row[]} rows @returns {(row: Row) => string} */
export function homes(rows) {
  const byId = new Map(rows.map((row) => [row.sessionId, row]));
  return (row) => {
    const passed = new Set();
    let at = row;
    for (let above = byId.get(originOf(at) ?? ""); above && !passed.has(above); above = byId.get(originOf(at) ?? "")) {
      passed.add(above);
      at = above;
    }
    return at.project ?? at.cwd;
  };
}

/** @param {Row[]} rows @returns {Place[]} */
function inOrder(rows) {
  const families = familiesOf(rows).map((family) => ({
    family,
    rank: Math.min(...family.map(({ row }) => rank(row))),
    at: family.map(({ row }) => row.updatedAt).sort().at(-1) ?? "",
  }));
  return families.sort((a, b) => a.rank - b.rank || byTime(b.at, a.at)).flatMap(({ family }) => family);
}

/** The session that this one was copied from. @param {Row} row */
const originOf = (row) => row.origins?.findLast((each) => each.sessionId !== row.sessionId)?.sessionId;

/** Also where its origin stands elsewhere, as one that is pinned does. @param {Row} row */
export const isFork = (row) => originOf(row) !== undefined;

/** Sessions, each with its forks below it. @param {Row[]} rows @returns {Place[][]} */
function familiesOf(rows) {
  const known = new Set(rows.map((row) => row.sessionId));
  const forks = groupBy(rows, (row) => originOf(row) ?? "");
  const placed = new Set();
  /** @param {Row} row @param {number} depth @param {number} number @returns {Place[]} */
  const family = (row, depth, number) => {
    if (placed.has(row.sessionId)) return [];  // of its own origin: nothing that the hub makes
    placed.add(row.sessionId);
    const its = forks.get(row.sessionId) ?? [];
    const made = its.toSorted((a, b) => byTime(a.createdAt, b.createdAt));
    return [{ row, depth, number }, ...its.flatMap((each) => family(each, depth + 1, its.length > 1 ? made.indexOf(each) + 1 : 0))];
  };
  const roots = rows.filter((row) => !known.has(originOf(row) ?? ""));
  return [...roots, ...rows].map((row) => family(row, 0, 0)).filter((its) => its.length > 0);
}
