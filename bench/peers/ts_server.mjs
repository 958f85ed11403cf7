// A server on the official TypeScript SDK; it prints its port. A prompt says what to send, as for
// `sdk_server.py`.
//
//     node ts_server.mjs PACKAGE_FOLDER FOLDER_OF_WS
import { createServer } from "node:http";
import { setTimeout as pause } from "node:timers/promises";

const [folder, folderOfWs] = process.argv.slice(2);
const acp = await import(`${folder}/dist/v1/stable/acp.js`);
const load = (name) => import(`${folder}/dist/transports/${name}.js`);
const { AcpServer } = await load("server");
const { createNodeHttpHandler, createNodeWebSocketUpgradeHandler } = await load("node-adapter");
const { WebSocketServer } = await import(`${folderOfWs}/wrapper.mjs`);
const { agent: inward, client: outward } = acp.methods;

const words = "the quick brown fox jumps over the lazy dog, 0123456";
let sessions = 0;

async function prompt({ params: { sessionId, prompt }, client }) {
  const [how, number] = prompt[0].text.split(" ");
  for (let left = parseInt(number) - 1; left >= 0; left--) {
    if (how === "paced") await pause(1);
    const text = `${process.hrtime.bigint()} ${words}${left ? "" : "!"}`;
    const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text } };
    await client.notify(outward.session.update, { sessionId, update });
  }
  return { stopReason: "end_turn" };
}

const createAgent = () =>
  acp
    .agent({ name: "bench" })
    .onRequest(inward.initialize, () => ({ protocolVersion: 1, agentCapabilities: {} }))
    .onRequest(inward.session.new, () => ({ sessionId: `ts-${sessions++}` }))
    .onRequest(inward.session.prompt, prompt);

const server = new AcpServer({ createAgent });
const http = createServer(createNodeHttpHandler(server));
const upgrade = createNodeWebSocketUpgradeHandler(server, new WebSocketServer({ noServer: true }));
http.on("upgrade", upgrade);
http.listen(0, "127.0.0.1", () => process.stdout.write(`${http.address().port}\n`));
