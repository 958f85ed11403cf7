// One standing answer: how it is changed, and its Undo.
import { useState } from "preact/hooks";
import { read } from "../wire/pages.js";
import { html } from "./html.js";

/**
 * @typedef {object} Rule  as `acphold rules --json` prints it
 * @property {number} number
 * @property {string} text
 * @property {string} words  what it lets an agent do, and where
 * @property {string} meaning
 * @property {boolean} asks  whether it asks, whatever else allows it
 * @property {string} folder  "" for everywhere
 * @property {string} agent  "" for every agent
 * @property {string} sessionId
 * @property {boolean} watches
 * @property {boolean} isOff
 * @property {boolean} isOver  it ended at an upgrade, for the reason in `meaning`
 * @property {boolean} isNew
 * @property {boolean} waits  until it is accepted for this machine and journal
 * @property {string} madeAt
 * @property {string} madeWith
 * @property {string | null} expiresAt
 * @property {number} uses
 * @property {string | null} usedAt
 * @property {boolean} [isEnded]  it was revoked here
 */

/** Change rules; those that the server tells of then. @param {string} method @param {string} path @param {object} [body] @returns {Promise<Rule[]>} */
export async function changeRule(method, path, body = {}) {
  const how = { method, headers: { "Content-Type": "application/json" }, body: method === "DELETE" ? undefined : JSON.stringify(body) };
  return (await read(path, {}, how)).rules ?? [];
}

const months = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** The day of something that was, or will be. @param {string} at */
export const day = (at) => months.format(new Date(at));

/** @param {{number: number}[]} rules */
export const spoken = (rules) => `Rule${rules.length > 1 ? "s" : ""} ${rules.map((each) => each.number).join(" and ")}`;

/** Revokes a rule at once, in every process. @param {{number: number, isOne: boolean, done: () => void}} props */
export function UndoRule({ number, isOne, done }) {
  const [state, setState] = useState("");
  const undo = () => {
    setState("busy");
    changeRule("DELETE", `/rules/${number}`).then(done, (error) => setState(error.message));
  };
  return html`<button type="button" class="undo-rule" disabled=${state === "busy"} aria-label=${`Undo: revoke rule ${number}`} onClick=${undo}>Undo${isOne ? "" : ` ${number}`}</button>${state && state !== "busy" && html`<span class="bad" role="alert">${state}</span>`}`;
}
