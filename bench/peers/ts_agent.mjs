// An agent on the official TypeScript SDK; a prompt says how many updates to send (`flood N`).
// The last one ends in "!".
import * as acp from "@agentclientprotocol/sdk";
import { Readable, Writable } from "node:stream";

const text = "0 the quick brown fox jumps over the lazy dog, 0123456";

acp
  .agent({ name: "bench" })
  .onRequest("initialize", () => ({ protocolVersion: 1, agentCapabilities: {} }))
  .onRequest("session/new", () => ({ sessionId: "ts-0123456789abcdef" }))
  .onRequest("session/prompt", async ({ client, params }) => {
    const number = parseInt(params.prompt[0].text.split(" ")[1]);
    for (let sent = 1; sent <= number; sent++) {
      const content = { type: "text", text: sent < number ? text : `${text}!` };
      const update = { sessionUpdate: "agent_message_chunk", content };
      await client.notify("session/update", { sessionId: params.sessionId, update });
    }
    return { stopReason: "end_turn" };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
