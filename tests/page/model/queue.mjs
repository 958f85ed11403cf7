// Applies the differences of a file as the page does, and says where that is another queue than the
// one beside them: see tests/history/test_queue_delta.py.
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { changedQueue } from "../../../src/acphold/web/page/model/queue.js";

/** What is false, empty or null counts as left out. @param {object} queue */
const plain = (queue) => Object.fromEntries(Object.entries(queue).filter(([, value]) => (Array.isArray(value) ? value.length : value)));

const lines = readFileSync(process.argv[2], "utf8").split("\n").map((each) => JSON.parse(each));
const wrong = lines.filter(({ before, delta, after }) => !isDeepStrictEqual(plain(changedQueue(before, delta)), plain(after)));
console.log(JSON.stringify({ applied: lines.length, wrong: wrong.slice(0, 1) }));
