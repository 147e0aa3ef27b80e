"""A worker with many slots on one thread: python3 many.py SOCKET TYPE..."""
import asyncio, json, os, sys

SLOTS = 100  # jobs that run at the same time

async def work(job):  # your part, as in worker.py; use asyncio.to_thread for calls that block
    return {"echo": job.get("payload"), "type": job["type"]}

async def serve(path, types):
    try: reader, writer = await asyncio.open_unix_connection(path, limit=2**21)  # longer than any frame
    except OSError as error: sys.exit(f"no dispatcher on {path}: {error}: start one, or give the path of its worker socket")
    tasks = {}
    def say(op, **fields):
        if not writer.is_closing(): writer.write((json.dumps({"op": op, **fields}) + "\n").encode())
    def end(job, task):  # a callback, because a task that is cancelled at once never starts
        name = {key: job[key] for key in ("job", "attempt", "session")}
        del tasks[job["job"], job["attempt"]]
        try: say("done", **name, result=task.result())
        except (Exception, asyncio.CancelledError) as error: say("fail", **name, error=repr(error))
    say("hello", versions=[1, 1], worker=f"python-{os.getpid()}", slots=[{"slot": slot, "types": types} for slot in range(SLOTS)])
    while line := await reader.readline():
        frame = json.loads(line)
        if frame["op"] == "job":
            task = tasks[frame["job"], frame["attempt"]] = asyncio.create_task(work(frame))
            task.add_done_callback(lambda task, job=frame: end(job, task))
        elif frame["op"] in ("cancel", "stale"):
            if task := tasks.get((frame["job"], frame["attempt"])): task.cancel()
        elif frame["op"] == "ping": say("pong")
        elif frame["op"] == "error": print(frame["message"], file=sys.stderr)
    writer.close()

if len(sys.argv) < 3: sys.exit(__doc__)
asyncio.run(serve(sys.argv[1], sys.argv[2:]))
