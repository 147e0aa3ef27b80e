// A complete worker with nothing but Node.js: node worker.mjs SOCKET TYPE...
import { createConnection } from "node:net";
import { createInterface } from "node:readline";

async function work(job) { // your part: the value is the result, an exception is a failure
  return { echo: job.payload, type: job.type };
}

const [path, ...types] = process.argv.slice(2);
if (!types.length) { console.error("usage: node worker.mjs SOCKET TYPE..."); process.exit(1); }
const socket = createConnection(path).on("error", ({ message }) => {
  console.error(`no dispatcher on ${path}: ${message}: start one, or give the path of its worker socket`); process.exit(1); });
const say = (op, fields) => socket.write(JSON.stringify({ op, ...fields }) + "\n");
say("hello", { versions: [1, 1], worker: `node-${process.pid}`, slots: [{ slot: 0, types }] });
for await (const line of createInterface({ input: socket })) {
  const { op, job, attempt, session, ...rest } = JSON.parse(line);
  if (op === "job") work(rest).then(
    (result) => say("done", { job, attempt, session, result }),
    (error) => say("fail", { job, attempt, session, error: String(error) }));
  else if (op === "ping") say("pong");
  else if (op === "error") console.error(rest.message);
}
process.exit(1); // the connection has ended: a supervisor starts the worker again
