// How sessions stand, and in what order they are listed.
import { CUT, ENDINGS } from "./tables.js";
import { baseName, called, line, shortPath } from "./text.js";
import { byTime, dayOf, moment } from "./times.js";

/** @typedef {import("../wire/pages.js").Row} Row */

/** How a session stands, for its colour and in words: a colour alone says nothing to who cannot see it. @param {Row | undefined} row @returns {[string, string]} */
export function standing(row) {
  const state = row?.live?.state;
  if (state === "waiting") return ["waiting", "waiting for you"];
  if (state === "running") return ["running", "running"];
  if (row?.movedTo) return ["rest", `moved to ${line(row.movedTo, CUT.name)}`];
  const ended = ENDINGS[row?.outcome ?? ""];
  const kind = row?.outcome === "cancelled" ? "stopped" : "failed";
  if (ended) return [row?.unseen ? `unseen ${kind}` : kind, ended];
  if (row?.unseen) return ["unseen", "done"];
  return state === "idle" ? ["idle", "idle"] : ["rest", ""];
}

/** The queued prompts in a session. @param {Row} row */
export const waits = ({ queued, held, heldUntil }) => `${queued} queued${heldUntil ? `, paused until ${moment(heldUntil)}` : held === "elsewhere" ? ", planned elsewhere" : held ? ", paused" : ""}`;

/** A session in the list: how deep it stands below its origin, or what that is called where it stands elsewhere; and how it differs from others of its name. @typedef {{row: Row, depth: number, of: string, apart: string}} Place */
/** @typedef {{name: string, places: Place[]}} Day */

const ORDER = ["waiting", "running", "unseen", "idle", "failed", "stopped", "rest"];

/** What is no news has the last rank. */
const OLD = 3;

/** @param {Row} row */
const rank = (row) => Math.min(OLD, ORDER.indexOf(standing(row)[0].split(" ")[0]));

/** @typedef {{cwd: string, name: string, days: Day[]}} Project */

/**
 * Groups rows by project, the one with something live first, then the one that changed last. In each,
 * what waits, works or is new stands first, on a day without a name, then the others by day. A fork
 * stands below its origin, where both are of one day, and else says whose fork it is.
 *
 * What is returned keeps its projects: one with the same rows, on the same day, is the same as before.
 * @returns {(rows: Row[], now?: number) => Project[]}
 */
export function grouping() {
  /** @type {Map<string, {its: Row[], today: string, best: number, project: Project}>} */
  let kept = new Map();
  return (rows, now = Date.now()) => {
    const today = new Date(now).toDateString();
    const groups = groupBy(rows, (row) => row.cwd);
    const names = groupBy([...groups.keys()], baseName);
    const before = kept;
    kept = new Map();
    for (const [cwd, its] of groups) {
      const was = before.get(cwd);
      const name = (names.get(baseName(cwd)) ?? []).length > 1 ? shortPath(cwd) : baseName(cwd);
      const isSame = was?.today === today && was.project.name === name && was.its.length === its.length && was.its.every((row, at) => row === its[at]);
      kept.set(cwd, isSame ? was : { its, today, best: Math.min(...its.map(rank)), project: { cwd, name, days: byDay(its, now) } });
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

/** @param {Row[]} rows @param {number} now @returns {Day[]} */
function byDay(rows, now) {
  const byId = new Map(rows.map((row) => [row.sessionId, row]));
  /** The group of a row: of turns that were left, that of the session they were left in. @param {Row} row @returns {string} */
  const groupOf = (row) => {
    const origin = originOf(row);
    const above = row.sessionId.startsWith(`${origin}~`) && byId.get(origin ?? "");
    return above ? groupOf(above) : rank(row) < OLD ? "" : dayOf(row.updatedAt, now);
  };
  const named = groupBy(rows, groupOf);
  const families = [...named].flatMap(([name, its]) => familiesOf(its, rows).map((family) => ({
    name,
    family,
    rank: Math.min(...family.map(({ row }) => rank(row))),
    at: family.map(({ row }) => row.updatedAt).sort().at(-1) ?? "",
  })));
  families.sort((a, b) => a.rank - b.rank || byTime(b.at, a.at));
  /** @type {Day[]} */
  const days = [];
  for (const { name, family } of families) {
    if (days.at(-1)?.name !== name) days.push({ name, places: [] });
    days.at(-1)?.places.push(...family);
  }
  return days;
}

/** The session that this one was copied from. @param {Row} row */
const originOf = (row) => row.origins?.findLast((each) => each.sessionId !== row.sessionId)?.sessionId;

/** Sessions of a day, each with its forks below it. @param {Row[]} rows @param {Row[]} all  those of its project @returns {Place[][]} */
function familiesOf(rows, all) {
  const known = new Set(rows.map((row) => row.sessionId));
  const forks = groupBy(rows, (row) => originOf(row) ?? "");
  const apart = apartIn(all);
  const titles = new Map(all.map((row) => [row.sessionId, called(row.title)]));
  const placed = new Set();
  /** @param {Row} row @param {number} depth @returns {Place[]} */
  const family = (row, depth) => {
    if (placed.has(row.sessionId)) return [];  // of its own origin: nothing that the hub makes
    placed.add(row.sessionId);
    return [{ row, depth, of: (depth === 0 && titles.get(originOf(row) ?? "")) || "", apart: apart(row) }, ...(forks.get(row.sessionId) ?? []).flatMap((each) => family(each, depth + 1))];
  };
  const roots = rows.filter((row) => !known.has(originOf(row) ?? ""));
  return [...roots, ...rows].map((row) => family(row, 0)).filter((its) => its.length > 0);
}

/** How sessions of one name differ: by when they began, and where that is not enough by their ids. @param {Row[]} rows @returns {(row: Row) => string} */
function apartIn(rows) {
  const named = groupBy(rows, (row) => called(row.title));
  const twins = [...named.values()].flatMap((its) => (its.length > 1 ? its : []));
  const started = (/** @type {Row} */ row) => `started ${moment(row.createdAt)}`;
  const dated = groupBy(twins, (row) => called(row.title) + started(row));
  /** @type {Map<Row, string>} */
  const apart = new Map();
  for (const its of dated.values()) {
    for (const row of its) apart.set(row, its.length < 2 ? started(row) : `${started(row)}, ${line(row.sessionId.slice(-6), CUT.code)}`);
  }
  return (row) => apart.get(row) ?? "";
}
