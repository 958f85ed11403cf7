// A new session on one screen: the first prompt, in which folder, with which agent.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { Draft } from "../model/draft.js";
import { promptBlocks } from "../model/prompt_blocks.js";
import { homes } from "../model/rows.js";
import { agentName, shortPath } from "../model/text.js";
import { device } from "../wire/device.js";
import { html } from "./html.js";
import { toComposer } from "./keys.js";
import { go, here, sessionPlace } from "./places.js";

/** Folders that can be tapped before somebody types, or asks for more. */
const LATEST = 5;

/** Of what has no session yet. */
const draft = new Draft("new");

/** The agent that is being started, and since when, also while somebody looks at something else: once, however often they come back. */
const starting = signal(/** @type {{agent: string, at: number} | null} */ (null));
const problem = signal("");

/** What is typed until it is shown, which is for its agent, too. */
const next = signal("");

const coarse = matchMedia("(pointer: coarse)");

/** @param {{desk: import("../model/desk.js").Desk}} props */
export function NewSession({ desk }) {
  // The next thing is to write; on a touch screen, focus would open a keyboard over half of it.
  useEffect(() => void (coarse.matches || /** @type {HTMLElement | null} */ (document.querySelector("main.new textarea"))?.focus()), []);
  return html`<main class="plain new" id="main" tabindex="-1">
    <header class="bar"><a class="back" href="#/" aria-label="All sessions"></a><h1>New session</h1></header><${NewForm} desk=${desk} /></main>`;
}

/** @param {{desk: import("../model/desk.js").Desk}} props */
export function NewForm({ desk }) {
  const agents = desk.server.agents.value;
  const known = [...desk.listed.value.map(homes(desk.listed.value)), desk.server.folder];
  const folders = [...new Set(known)].filter(Boolean);
  const { home } = desk.server;
  const words = draft.text.value;
  const [agent, setAgent] = useState("");
  const [cwd, setCwd] = useState("");
  const [isCopy, setCopy] = useState(false);
  const [hasIgnored, setIgnored] = useState(false);
  const isBusy = starting.value !== null;
  const area = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  useEffect(() => void draft.load(), []);
  const typed = home ? cwd.trim().replace(/^~(?=\/|$)/, () => home) : cwd.trim();
  const folder = typed || folders[0] || "";
  const [isWhole, setWhole] = useState(false);
  const fitting = folders.includes(folder) ? folders : folders.filter((each) => each.toLowerCase().includes(typed.toLowerCase()));
  const shown = isWhole ? fitting : fitting.slice(0, LATEST);
  /** @param {Event} event */
  const begin = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    const from = here().name;
    starting.value = { agent: agent || agents[0], at: Date.now() };
    problem.value = "";
    if (!coarse.matches) area.current?.focus();
    try {
      const session = await desk.newSession(starting.value.agent, folder, isCopy ? { include: hasIgnored } : undefined);
      void draft.write("");
      if (words.trim()) void session.prompt(promptBlocks(words.trim(), session.cwd));
      const isHere = here().name === from;
      if (isHere) {
        // Until it is shown, nobody starts another one.
        const isShown = new Promise((resolve) => addEventListener("hashchange", resolve, { once: true }));
        go(sessionPlace(session.id));
        await isShown;
      }
      // First, so that the next key goes on behind it.
      if (next.value) await session.draft.takeBack([{ type: "text", text: next.value }]);
      if (isHere) await toComposer(session.id);
    } catch (error) {
      problem.value = `The session could not be started. ${/** @type {Error} */ (error).message}`;
      if (next.value) void draft.write([words, next.value].filter(Boolean).join("\n\n"));
    } finally {
      starting.value = null;
      next.value = "";
    }
  };
  /** @param {KeyboardEvent & On<HTMLTextAreaElement>} event */
  const onKey = (event) => {
    if (event.key !== "Enter" || event.isComposing || event.shiftKey || (coarse.matches && !event.ctrlKey && !event.metaKey)) return;
    event.preventDefault();
    event.target.form?.requestSubmit();
  };
  return html`<form onSubmit=${begin}>
      <label>${isBusy ? "Next prompt" : "First prompt"}<textarea ref=${area} rows="4" value=${isBusy ? next.value : words} placeholder=${(isBusy && words) || "Write to the agent"} onKeyDown=${onKey}
        onInput=${(/** @type {On<HTMLTextAreaElement>} */ { target }) => (starting.peek() ? (next.value = target.value) : draft.write(target.value))}></textarea></label>
      <div class="folder">
        <label>Folder on the server<input list="folders" value=${cwd} placeholder=${folders[0] ?? "/home/you/project"} required=${folders.length === 0} pattern=${home ? "\\s*(/.*|~|~/.*)\\s*" : "\\s*/.*"} title=${`A whole path, as ${folders[0] ?? "/home/you/project"}${home && " or ~/project"}`} autocapitalize="off" spellcheck=${false} onInput=${(/** @type {On<HTMLInputElement>} */ event) => setCwd(event.target.value)} /></label>
        <datalist id="folders">${folders.map((each) => html`<option value=${each}></option>`)}</datalist>
        ${fitting.length > 0 && html`<div class="latest" role="group" aria-label="Recent folders">${shown.map(
          (each) => html`<button type="button" key=${each} title=${each} aria-pressed=${each === folder} onClick=${() => setCwd(each)}>${shortPath(each)}</button>`,
        )}${shown.length < fitting.length && html`<button type="button" class="quiet" onClick=${() => setWhole(true)}>${fitting.length - shown.length} more</button>`}</div>`}
      </div>
      ${device()?.scopes.includes("files") && html`<div class="in-copy">
        <label class="check"><input type="checkbox" checked=${isCopy} onChange=${() => setCopy(!isCopy)} />In a copy of the repository</label>
        ${isCopy && html`<p class="aside">A new work tree beside it, with a branch of its own. <code>acphold session merge</code> brings the work back.</p>
          <label class="check"><input type="checkbox" checked=${hasIgnored} onChange=${() => setIgnored(!hasIgnored)} />With the ignored files that its .worktreeinclude names</label>`}
      </div>`}
      ${problem.value && html`<p class="bad" role="alert">${problem.value}</p>`}
      <div class="begin"><label>Agent<select value=${agent || agents[0]} onChange=${(/** @type {On<HTMLInputElement>} */ event) => setAgent(event.target.value)}>${agents.map((each) => html`<option value=${each}>${agentName(each)}</option>`)}</select></label>
      <button type="submit" class="main" disabled=${isBusy || !desk.server.isOnline}>${starting.value ? html`<${Starting} ...${starting.value} />` : words.trim() ? "Start and send" : "Start"}</button></div>
    </form>`;
}

/** What is being started, with the seconds that it takes. @param {{agent: string, at: number}} props */
function Starting({ agent, at }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const tick = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(tick);
  }, [at]);
  const seconds = Math.round((now - at) / 1000);
  return html`Starting ${agentName(agent)} …${seconds > 0 && ` ${seconds} s`}`;
}
