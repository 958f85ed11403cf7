// What can be done with a session as a whole.
import { useRef, useState } from "preact/hooks";
import { exported } from "../model/exports.js";
import { copied } from "./copy.js";
import { html } from "./html.js";
import { go, sessionPlace } from "./places.js";

/** @param {{desk: import("../model/desk.js").Desk, id: string, row: any, title: string, session: any, find: () => void}} props */
export function SessionMenu({ desk, id, row, title, session, find }) {
  const menu = useRef(/** @type {any} */ (null));
  const [problem, setProblem] = useState("");
  /** @param {() => unknown} what */
  const act = (what) => async () => {
    menu.current?.hidePopover();
    setProblem("");
    try {
      await what();
    } catch (error) {
      setProblem(String(/** @type {Error} */ (error).message));
    }
  };
  const rename = () => {
    const name = prompt("Name of this session", title);
    if (name) return desk.server.call("session/set_title", { sessionId: id, title: name });
  };
  const archive = async () => {
    await desk.server.call(row?.archived ? "session/unarchive" : "session/archive", { sessionId: id });
    if (!row?.archived) go("#/");
  };
  const remove = async () => {
    if (!confirm("Delete this session permanently?")) return;
    await desk.server.call("session/delete", { sessionId: id });
    go("#/");
  };
  const fork = async () => {
    const told = await desk.server.call("session/fork", { sessionId: id, cwd: session.cwd, mcpServers: [] });
    go(sessionPlace(told.sessionId));
  };
  return html`<div class="menu">
    <button type="button" popovertarget="session-menu" aria-label="More">⋯</button>
    <div id="session-menu" popover="auto" ref=${menu}>
      <button type="button" onClick=${act(find)}>Find</button>
      <button type="button" onClick=${act(rename)}>Rename</button>
      <button type="button" onClick=${act(() => copied(location.href))}>Copy a link</button>
      <button type="button" onClick=${act(fork)}>Fork</button>
      <button type="button" onClick=${act(() => exported(id))}>Export</button>
      <button type="button" onClick=${act(archive)}>${row?.archived ? "Bring back" : "Archive"}</button>
      <button type="button" class="bad" onClick=${act(remove)}>Delete</button>
    </div>
    ${problem && html`<p class="bad" role="alert">${problem}</p>`}
  </div>`;
}
