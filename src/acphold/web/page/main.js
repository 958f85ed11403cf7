// The page of `acphold serve`: pairs this device where its address has a code, then connects.
import { render } from "preact";
import { Desk } from "./model/desk.js";
import { drawn } from "./model/frames.js";
import { App } from "./view/app.js";
import { html } from "./view/html.js";
import "./view/lent.js";
import { codeIn, place } from "./view/places.js";
import { device, whenChanged } from "./wire/device.js";

async function start() {
  let problem = "";
  const desk = new Desk();
  listen(desk);
  const code = codeIn(location.hash);
  if (code) {
    // Out of the address first: it is of no use twice, and stays in no history.
    history.replaceState(null, "", "#/");
    dispatchEvent(new HashChangeEvent("hashchange"));
    await import(LATER).then(({ pairByAddress }) => pairByAddress(code)).catch((error) => (problem = error.message));
  }
  // A link that is opened in this tab: the page begins anew with it.
  addEventListener("hashchange", () => codeIn(location.hash) && location.reload());
  const known = device();
  // What is looked at is drawn with the page where it is there already, and before anything else is
  // done, as each thing asked of the browser keeps the first frame waiting.
  const kept = globalThis.early?.kept;
  const { seen } = place.value.name === "session" && known ? desk.show(place.value.id) : { seen: null };
  await soon(kept && kept.then((page) => page && seen), 300);
  const page = document.getElementById("page");
  if (page) render(html`<${App} desk=${desk} problem=${problem} />`, page);
  await soon(seen, 1000);
  if (seen) await drawn();
  whenChanged(known, () => location.reload());  // nothing of who was here before stays in memory
  desk.start();
  // Without it there are notices of what somebody at the page sees, which does no harm.
  void import(LATER).then(({ attend }) => attend(() => desk.isListed.peek() && desk.inbox.peek().length === 0), () => {});
  await registered().catch(() => {});  // a private window has none: everything else is there
}

/** @param {Promise<unknown> | null | undefined} what @param {number} ms */
const soon = (what, ms) => what && Promise.race([what, new Promise((resolve) => setTimeout(resolve, ms))]);

/** Go where a notice leads, and reject what a person has rejected in it, once. @param {Desk} desk */
function listen(desk) {
  let last = "";
  navigator.serviceWorker?.addEventListener("message", ({ data, ports }) => {
    if (typeof data?.place === "string" && data.place.startsWith("#/")) location.hash = data.place;
    ports[0]?.postMessage("heard");
    if (!data?.reject || data.reject === last) return;
    last = data.reject;
    void import(LATER).then(({ reject }) => reject(desk, last));
  });
}

/** The service worker; its address is the one thing that the policy of the page lets become a script. */
async function registered() {
  if (!("serviceWorker" in navigator)) return;
  // What is shown first is the page as it is kept here: a newer one takes its place while nobody
  // has touched it, and else when it is opened next.
  if (navigator.serviceWorker.controller) {
    navigator.serviceWorker.addEventListener("controllerchange", () => navigator.userActivation?.hasBeenActive || location.reload());
  }
  const policies = /** @type {{trustedTypes?: {createPolicy(name: string, rules: {createScriptURL(url: string): string}): {createScriptURL(url: string): string}}}} */ (window).trustedTypes;
  const policy = policies?.createPolicy("acphold", { createScriptURL: () => "/worker.js" });
  await navigator.serviceWorker.register(policy ? policy.createScriptURL("") : "/worker.js");
}

void start();
