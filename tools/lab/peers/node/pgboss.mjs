// pg-boss: fill N inserts the jobs in bulk, work N does them.
import { PgBoss } from "pg-boss";
import pg from "pg";
import { now, say } from "./clock.mjs";

const [verb, count] = [process.argv[2], Number(process.argv[3])];
const queue = "noop";
const boss = new PgBoss({
  host: process.env.PGHOST,
  port: Number(process.env.PGPORT),
  user: process.env.PGUSER,
  database: process.env.PGDATABASE,
  supervise: false, // no maintenance within the measured time
  schedule: false,
  max: 10,
});
boss.on("error", (error) => process.stderr.write(`${error}\n`));

async function fill() {
  await boss.createQueue(queue);
  for (let first = 0; first < count; first += 10_000) {
    const jobs = [];
    for (let n = first; n < Math.min(first + 10_000, count); n++) jobs.push({ data: { n } });
    await boss.insert(queue, jobs);
  }
}

async function work() {
  let begun = 0;
  const loop = async () => {
    let done = 0;
    for (;;) {
      const jobs = await boss.fetch(queue, { batchSize: 1000 });
      if (jobs.length === 0) return done;
      begun ||= now();
      await boss.complete(queue, jobs.map((job) => job.id));
      done += jobs.length;
    }
  };
  const done = await Promise.all([loop(), loop()]);
  const ended = now();
  const pool = new pg.Pool();
  const kept = await pool.query("select count(*)::int as n from pgboss.job where name = $1 and state = 'completed'", [queue]);
  await pool.end();
  if (done[0] + done[1] !== count || kept.rows[0].n !== count) throw new Error(`${kept.rows[0].n} of ${count} jobs are done`);
  say("first", begun);
  say("last", ended);
}

await boss.start();
await (verb === "fill" ? fill() : work());
await boss.stop({ graceful: false });
