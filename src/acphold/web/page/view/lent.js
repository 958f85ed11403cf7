// What the page lends to `later.js`, by what views import it as, so that it is there once: see build.mjs.
import { effect, signal } from "@preact/signals";
import * as preact from "preact";
import * as hooks from "preact/hooks";
import { Prose } from "../model/prose.js";
import { standing } from "../model/rows.js";
import { coded, command, words } from "./coded.js";
import { Guard } from "./guard.js";
import { html } from "./html.js";
import { Long } from "./long.js";
import { ProseView } from "./prose.js";
import { codeIn, go, here, place, sessionPlace, whole } from "./places.js";
import { State } from "./rows.js";
import { useSome } from "./pieces.js";
import { Output } from "./terminal.js";

/** @type {any} */ (globalThis).lent = {
  preact,
  "@preact/signals": { effect, signal },
  "preact/hooks": hooks,
  "./coded.js": { coded, command, words },
  "./guard.js": { Guard },
  "./html.js": { html },
  "./places.js": { codeIn, go, here, place, sessionPlace, whole },
  "./rows.js": { standing, State },
  "./long.js": { Long },
  "../model/prose.js": { Prose },
  "./prose.js": { ProseView },
  "./pieces.js": { useSome },
  "./terminal.js": { Output },
};
