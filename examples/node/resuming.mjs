// A worker that keeps its job while the dispatcher restarts: node resuming.mjs SOCKET TYPE...
import { createConnection } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

async function work(job, stop) { // your part, as in worker.mjs; when the signal stop is aborted the result is not wanted any more
  return { echo: job.payload, type: job.type };
}

const [path, ...types] = process.argv.slice(2);
if (!types.length) { console.error("usage: node resuming.mjs SOCKET TYPE..."); process.exit(1); }
const slot = { slot: 0, types };
let socket = null;
let held = null; // what runs in the slot, or ran there last: only the next job shows that its report was read
let busy = 0; // executions that have not ended, given up or not
let keep = 0; // milliseconds that a job goes on without a connection

const say = (op, fields) => socket?.write(JSON.stringify({ op, ...fields }) + "\n");
const offer = () => busy || say("slot_add", { slots: [slot] });
function report({ job, attempt, session, said }) {
  if (session && said) say(said.op, { job, attempt, session, ...said.fields });
}
function giveUp() {
  held.stop.abort();
  held = null;
}

async function run(job, mine) {
  try { mine.said = { op: "done", fields: { result: await work(job, mine.stop.signal) } }; }
  catch (error) { mine.said = { op: "fail", fields: { error: String(error) } }; }
  busy--;
  if (mine === held) report(mine); else offer();
}

function hello() {
  const running = held ? [{ ...slot, job: held.job, attempt: held.attempt, session: held.born, times: ++held.times }] : [];
  say("hello", { versions: [1, 1], worker: `node-${process.pid}`, slots: held || busy ? [] : [slot], running, resumes: true });
}

function welcome({ limits, session, resumed = [] }) {
  keep = limits.resume_ms ?? 0;
  socket.setTimeout(limits.timeout_ms); // there are pings meanwhile
  if (!held) return;
  if (resumed.some(({ job, attempt }) => job === held.job && attempt === held.attempt)) {
    held.session = session;
    report(held);
  } else { giveUp(); offer(); }
}

function take({ op, ...frame }) {
  const { job, attempt, session } = frame;
  if (op === "welcome") welcome(frame);
  else if (op === "job") {
    busy++;
    held = { job, attempt, session, born: session, times: 0, said: null, stop: new AbortController() };
    run(frame, held);
  } else if (op === "cancel" || op === "stale") { if (held?.job === job) held.stop.abort(); }
  else if (op === "ping") say("pong");
  else if (op === "error") {
    console.error(frame.message);
    if (frame.fatal && ["version", "refused", "bad_json", "bad_value", "bad_slot"].includes(frame.code)) process.exit(1);
  }
}

const connection = () => new Promise((closed) => {
  let text = "";
  const mine = createConnection(path).setEncoding("utf8").setTimeout(10_000); // until the welcome says how long
  mine.on("connect", () => { socket = mine; hello(); });
  mine.on("data", (more) => {
    const lines = (text + more).split("\n");
    text = lines.pop();
    for (const line of lines) take(JSON.parse(line));
  });
  mine.on("timeout", () => mine.destroy()).on("error", () => {}).on("close", closed); // which comes after an error, too
});

for (let pause = 50, lost = 0; ;) {
  const began = performance.now();
  await connection();
  socket = null;
  const now = performance.now();
  if (held?.session) lost = now;
  if (held) held.session = null;
  if (held && now - lost > keep) giveUp();
  pause = now - began > 5_000 ? 50 : Math.min(2 * pause, 1_000);
  await sleep(pause * (0.5 + Math.random() / 2));
}
