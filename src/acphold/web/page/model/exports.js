// A session as a file on this device.
import { request } from "../wire/device.js";

/** Have the browser keep it. @param {string} id */
export async function exported(id) {
  const answer = await request(`/sessions/${encodeURIComponent(id)}/export`);
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `HTTP ${answer.status}`);
  const link = document.createElement("a");
  const named = /filename\*=UTF-8''(\S+)/.exec(answer.headers.get("content-disposition") ?? "");
  link.download = named ? decodeURIComponent(named[1]) : "session.html";
  // No browser shows this type: as a page, what agents said would be of our origin.
  link.href = URL.createObjectURL(new Blob([await answer.arrayBuffer()], { type: "application/octet-stream" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
