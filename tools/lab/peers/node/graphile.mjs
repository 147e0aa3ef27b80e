// graphile-worker: fill N inserts the jobs in bulk, work N does them.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { now, say } from "./clock.mjs";

const [verb, count] = [process.argv[2], Number(process.argv[3])];
const pool = new pg.Pool({ max: 10 });
const quiet = new Logger(() => (level, message) => {
  if (level === "error") process.stderr.write(`${message}\n`);
});

async function fill() {
  const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
  await utils.migrate();
  for (let first = 0; first < count; first += 10_000) {
    const specs = [];
    for (let n = first; n < Math.min(first + 10_000, count); n++) specs.push({ identifier: "noop", payload: { n } });
    await utils.addJobs(specs);
  }
  await utils.release();
}

async function work() {
  let begun = 0;
  let done = 0;
  let finished;
  const all = new Promise((resolve) => (finished = resolve));
  const runner = await run({
    pgPool: pool,
    taskList: {
      noop: async () => {
        begun ||= now();
        if (++done === count) finished();
      },
    },
    preset: {
      worker: {
        concurrentJobs: 24,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
        logger: quiet,
      },
    },
    noHandleSignals: true,
  });
  await all;
  await runner.stop(); // returns when the batched ends are in Postgres
  const ended = now();
  const left = await pool.query("select count(*)::int as n from graphile_worker._private_jobs");
  if (left.rows[0].n !== 0) throw new Error(`${left.rows[0].n} jobs are left over`);
  say("first", begun);
  say("last", ended);
}

await (verb === "fill" ? fill() : work());
await pool.end();
