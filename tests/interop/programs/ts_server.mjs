// A server on the official TypeScript SDK: an agent over HTTP and WebSocket.
//
//     node ts_server.mjs PACKAGE_FOLDER FOLDER_OF_WS
//
// As python_server.py: it prints its port, keeps its sessions for as long as it runs, and heeds the
// word `slow`.
import { createServer } from "node:http";
import { setTimeout as pause } from "node:timers/promises";

const [folder, folderOfWs] = process.argv.slice(2);
const acp = await import(`${folder}/dist/v1/stable/acp.js`);
const load = (name) => import(`${folder}/dist/transports/${name}.js`);
const { AcpServer } = await load("server");
const { createNodeHttpHandler, createNodeWebSocketUpgradeHandler } = await load("node-adapter");
const { WebSocketServer } = await import(`${folderOfWs}/wrapper.mjs`);
const { agent: inward, client: outward } = acp.methods;
const sessions = new Map();

const text = (words) => ({ type: "text", text: words });

async function say(client, sessionId, words) {
  const update = { sessionUpdate: "agent_message_chunk", content: text(words) };
  sessions.get(sessionId).said.push(update);
  await client.notify(outward.session.update, { sessionId, update });
}

async function prompt({ params: { sessionId, prompt }, client }) {
  const session = sessions.get(sessionId);
  session.cancelled = false;
  const words = prompt[0].text;
  session.said.push({ sessionUpdate: "user_message_chunk", content: text(words) });
  if (words.includes("slow")) {
    for (let number = 0; !session.cancelled; number++) {
      await say(client, sessionId, `tick${number} `);
      await pause(20);
    }
    return { stopReason: "cancelled" };
  }
  await say(client, sessionId, `You said: ${words}. `);
  const answer = await client.request(outward.session.requestPermission, {
    sessionId,
    toolCall: { toolCallId: `call-${session.said.length}`, title: "Go on" },
    options: [
      { kind: "allow_once", name: "Yes", optionId: "yes" },
      { kind: "reject_once", name: "No", optionId: "no" },
    ],
  });
  await say(client, sessionId, `You chose: ${answer.outcome.optionId}.`);
  return { stopReason: "end_turn" };
}

const createAgent = () =>
  acp
    .agent({ name: "ts-server" })
    .onRequest(inward.initialize, () => ({
      protocolVersion: acp.PROTOCOL_VERSION,
      agentInfo: { name: "ts-server", version: "1" },
      agentCapabilities: { loadSession: true, sessionCapabilities: { list: {} } },
    }))
    .onRequest(inward.session.new, ({ params: { cwd } }) => {
      const sessionId = `session-${sessions.size}`;
      sessions.set(sessionId, { cwd, said: [], cancelled: false });
      return { sessionId };
    })
    .onRequest(inward.session.list, () => ({
      sessions: [...sessions].map(([sessionId, { cwd }]) => ({ sessionId, cwd })),
    }))
    .onRequest(inward.session.load, async ({ params: { sessionId }, client }) => {
      for (const update of sessions.get(sessionId).said) {
        await client.notify(outward.session.update, { sessionId, update });
      }
      return {};
    })
    .onNotification(inward.session.cancel, ({ params: { sessionId } }) => {
      sessions.get(sessionId).cancelled = true;
    })
    .onRequest(inward.session.prompt, prompt);

const server = new AcpServer({ createAgent });
const http = createServer(createNodeHttpHandler(server));
const upgrade = createNodeWebSocketUpgradeHandler(server, new WebSocketServer({ noServer: true }));
http.on("upgrade", upgrade);
http.listen(0, "127.0.0.1", () => process.stdout.write(`${http.address().port}\n`));
