// An agent on the official TypeScript SDK, without any session support: what it heard ends with it.
//
//     node ts_agent.mjs PACKAGE_FOLDER
//
// It heeds the same words as python_agent.py: `slow`, `recall`.
import { randomUUID } from "node:crypto";
import { Readable, Writable } from "node:stream";
import { setTimeout as pause } from "node:timers/promises";

const acp = await import(`${process.argv[2]}/dist/v1/stable/acp.js`);
const { agent: inward, client: outward } = acp.methods;
const sessions = new Map();

function teller(client, sessionId) {
  const tell = (update) => client.notify(outward.session.update, { sessionId, update });
  const chunk = (sessionUpdate) => (text) =>
    tell({ sessionUpdate, content: { type: "text", text } });
  return { tell, say: chunk("agent_message_chunk"), think: chunk("agent_thought_chunk") };
}

const plan = (first, second) => ({
  sessionUpdate: "plan",
  entries: [
    { content: "look", priority: "medium", status: first },
    { content: "change", priority: "medium", status: second },
  ],
});

async function work(client, sessionId, said) {
  const { tell, say, think } = teller(client, sessionId);
  await think("Let me ");
  await think("think.");
  await tell(plan("in_progress", "pending"));
  for (const word of ["You ", "said: ", said]) await say(word);
  const toolCallId = `call-${randomUUID()}`;
  const toolCall = { toolCallId, title: "Change a file", kind: "edit", rawInput: { n: 1 } };
  await tell({ sessionUpdate: "tool_call", ...toolCall, status: "pending" });
  const answer = await client.request(outward.session.requestPermission, {
    sessionId,
    toolCall: { toolCallId, title: "Change a file" },
    options: [
      { kind: "allow_once", name: "Yes", optionId: "yes" },
      { kind: "reject_once", name: "No", optionId: "no" },
    ],
  });
  const diff = { type: "diff", path: "/tmp/a.txt", oldText: "old\n", newText: "new\n" };
  const ok = { type: "content", content: { type: "text", text: "ok" } };
  const step = { sessionUpdate: "tool_call_update", toolCallId };
  await tell({ ...step, status: "in_progress", content: [diff] });
  await say("Changing it. ");
  const status = answer.outcome.optionId === "yes" ? "completed" : "failed";
  await tell({ ...step, status, content: [diff, ok], rawOutput: { lines: 1 } });
  await tell(plan("completed", "completed"));
  await say("Done.");
}

async function dawdle(client, sessionId, session) {
  const { tell, say } = teller(client, sessionId);
  const call = { toolCallId: `call-${randomUUID()}`, title: "Wait", kind: "execute" };
  await tell({ sessionUpdate: "tool_call", ...call, status: "in_progress" });
  for (let number = 0; !session.cancelled; number++) {
    await say(`tick${number} `);
    await pause(20);
  }
  const { toolCallId } = call;
  await tell({ sessionUpdate: "tool_call_update", toolCallId, status: "failed" });
}

acp
  .agent({ name: "plain-ts" })
  .onRequest(inward.initialize, () => ({
    protocolVersion: acp.PROTOCOL_VERSION,
    agentInfo: { name: "plain-ts", version: "1" },
    agentCapabilities: {},
  }))
  .onRequest(inward.session.new, () => {
    const sessionId = String(sessions.size);
    sessions.set(sessionId, { heard: [], cancelled: false });
    return { sessionId };
  })
  .onNotification(inward.session.cancel, ({ params }) => {
    const session = sessions.get(params.sessionId);
    if (session) session.cancelled = true;
  })
  .onRequest(inward.session.prompt, async ({ params, client }) => {
    const session = sessions.get(params.sessionId);
    if (!session) throw acp.RequestError.resourceNotFound(params.sessionId);
    session.cancelled = false;
    const said = params.prompt.map((block) => block.text ?? block.resource?.text ?? "");
    session.heard.push(...said);
    const words = said.at(-1);
    if (words.includes("recall")) {
      const { say } = teller(client, params.sessionId);
      await say(`I was given: ${session.heard.join(" | ")}`);
    } else if (words.includes("slow")) {
      await dawdle(client, params.sessionId, session);
    } else {
      await work(client, params.sessionId, words);
    }
    return { stopReason: session.cancelled ? "cancelled" : "end_turn" };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
